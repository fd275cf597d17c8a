"""The record of one episode, as a whole and event by event while it happens.

An episode is data: model calls, environment steps, outcome, cost. It can be stored, shown,
credited, trained on and replayed without the environment or the model that produced it.

A session writes each event to a journal as it happens. With a journal, an episode that a crash
interrupted continues: the same calls return the same replies, sampled with the same seeds. A
`Recording` returns the events of the interrupted attempt first and raises if the replay differs
from them; then it writes the new events.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.errors import ReplayMismatch
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.outcome import Outcome, Status
from palaestra.core.quick_init import quick_init
from palaestra.core.task import Task

ADVISOR = "advisor"
"""The role of replies by which an advisor may act in place of the agent, in its conversation."""


@dataclass(frozen=True, slots=True)
class Forfeit:
    """The end of one of several players before the end of the episode."""

    player: str
    outcome: Outcome  # why: a limit of its own, or an error of its agent
    returns: Mapping[str, float]  # of these players in this episode, whatever their rewards were


@quick_init
@dataclass(frozen=True, slots=True)
class Step:
    """One action in the environment."""

    index: int
    call: int | None  # the model call whose reply proposed the action; None if none did
    action: Action
    transition: Transition
    before: Signals  # of the state in which the action was taken
    seconds: float = 0.0
    calls_made: int | None = None
    """How many model calls were made before it. None in records without this field (older ones and
    those of other programs), where `call` is the latest call before the step."""

    forfeit: Forfeit | None = None
    """The player whose turn it was forfeits here. If `transition.terminated` is true, that ended
    the episode, and the environment saw no action; else the action is the one that does nothing."""

    late: bool = False
    """The player whose turn it was did not decide in time; the action is the one that does nothing.
    """

    @property
    def calls_before(self) -> int:
        """The number of model calls before it."""
        if self.calls_made is not None:
            return self.calls_made
        return 0 if self.call is None else self.call + 1


def together(before: Step | None, step: Step) -> bool:
    """Return whether the player of a step acts at the same time as that of the step before it.

    One that acts again, after an action that was not understood, is the same player.
    """
    if before is None or not before.before.together or not before.transition.valid:
        return False
    return (step.before.turn, *step.before.together) == before.before.together


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a rollout: unique within a run, and stable across resumes."""

    phase: str  # e.g. "rl/12" or "test/final"
    group: int  # position of the task in the phase's list of tasks
    member: int = 0  # which rollout of that task

    def __str__(self) -> str:
        return f"{self.phase}/{self.group}.{self.member}"


@dataclass(frozen=True, slots=True)
class PlayerResult:
    """What one of several players reached in an episode."""

    outcome: Outcome  # success: a positive return; else why the player forfeited, or a failure
    total: float  # its return: the sum of its rewards, or what a forfeit left to it
    turns: int  # actions of its own, before a forfeit
    invalid_actions: int
    forfeited: bool  # whether the player's own limit or error ended its part


@dataclass(frozen=True, slots=True, repr=False)
class Episode:
    """One finished episode."""

    key: Key
    task: Task
    agent: str
    observation: Observation | None  # the first one; None if the reset failed
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    outcome: Outcome
    usage: Usage
    progress: float | None = None  # at the end, where the environment declares it
    labels: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line: a whole episode may be megabytes of text."""
        steps, calls = len(self.steps), len(self.calls)
        return f"<Episode {self.key} of {self.task.id}: {self.outcome}, {steps=}, {calls=}>"

    @property
    def graph(self) -> MessageGraph:
        return MessageGraph(self.calls)

    @property
    def reward(self) -> float:
        """The sum of the environment's own rewards; meaningless where the outcome is not scored."""
        return sum(step.transition.reward for step in self.steps)

    @property
    def results(self) -> dict[str, float]:
        """The return of each of several players, in order; empty for a single player.

        It is the sum of its rewards, unless a forfeit decided otherwise (`Forfeit.returns`).
        """
        found: dict[str, float] = {}
        for step in self.steps:
            for player, reward in step.transition.rewards.items():
                found[player] = found.get(player, 0.0) + reward
        for step in self.steps:  # players that moved before any reward
            if step.before.turn is not None:
                found.setdefault(step.before.turn, 0.0)
        for player in () if self.observation is None else self.observation.others:
            found.setdefault(player, 0.0)  # players that never moved
        for step in self.steps:
            if step.forfeit is not None:
                found.update(step.forfeit.returns)
        return found

    @property
    def players(self) -> dict[str, PlayerResult]:
        """The result of each of several players; empty for a single player.

        An episode that no player ended, such as one that an error of the infrastructure cut off,
        has the same outcome for all.
        """
        forfeits = {s.forfeit.player: s for s in self.steps if s.forfeit is not None}
        why = {player: s.forfeit.outcome for player, s in forfeits.items() if s.forfeit is not None}
        decided = self.outcome.status in (Status.SUCCESS, Status.FAILURE)
        own: dict[str | None, list[Step]] = {}
        for step in self.steps:
            own.setdefault(step.before.turn, []).append(step)
        found = {}
        for player, total in self.results.items():
            end = forfeits[player].index if player in forfeits else len(self.steps)
            steps = [step for step in own.get(player, ()) if step.index < end]
            won = Outcome.success() if total > 0 else Outcome.failure()
            found[player] = PlayerResult(
                why.get(player, won if decided else self.outcome),
                total,
                len(steps),
                sum(not step.transition.valid for step in steps),
                player in forfeits,
            )
        return found

    @property
    def invalid_turns(self) -> int:
        """The number of actions that the environment did not understand."""
        return sum(not step.transition.valid for step in self.steps if step.forfeit is None)


# ── the journal ──────────────────────────────────────────────────────────────

Event = Call | Step
E = TypeVar("E", Call, Step)
_MISMATCH = {Call: "call {} asks something else", Step: "step {} led somewhere else"}


class Journal(Protocol):
    """Where a session writes each event as it happens."""

    def append(self, key: Key, event: Event) -> Awaitable[None] | None:
        """Store an event after the others of its episode; raises if it cannot be stored.

        Returns:
            an awaitable that ends once the event survives the end of this process; None: it does.
        """


def player_of(role: str) -> str:
    """Return the player that a role belongs to: "white" of "white" and of "white/planner"."""
    return role.partition("/")[0]


def derive_seed(*parts: object) -> int:
    """Return a stable 63-bit seed from any printable parts."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


class Recording:
    """The events of the episode `key`: first those of an interrupted attempt, then the new ones."""

    def __init__(self, key: Key, journal: Journal | None, past: Sequence[Event]) -> None:
        """Replay `past` first; without a journal, write nothing."""
        self._key, self._journal, self._past = key, journal, deque(past)

    @property
    def left(self) -> int:
        """The number of events of the interrupted attempt that are not replayed yet."""
        return len(self._past)

    def replayed(self, kind: type[E], same: Callable[[E], bool]) -> E | None:
        """Return the next event of the interrupted attempt; None after the last one.

        Raises:
            ReplayMismatch: it is not of the type `kind`, or not the `same`; it stays the next one.
        """
        if not self._past:
            return None
        event = self._past[0]
        if not isinstance(event, kind):
            raise ReplayMismatch(f"{self._key}: a {kind.__name__} happens, {event} was recorded")
        if not same(event):
            raise ReplayMismatch(f"{self._key}: {_MISMATCH[type(event)].format(event.index)}")
        self._past.popleft()
        return event

    def next_step(self) -> Step | None:
        """Return the next event of the interrupted attempt if it is a step, and leave it there."""
        event = self._past[0] if self._past else None
        return event if isinstance(event, Step) else None

    def without_calls(self) -> list[Call]:
        """Take the model calls out of the recorded events, and return them."""
        calls = [event for event in self._past if isinstance(event, Call)]
        self._past = deque(event for event in self._past if not isinstance(event, Call))
        return calls

    def write(self, event: Event) -> Awaitable[None] | None:
        """Write a new event; see `Journal.append`."""
        return None if self._journal is None else self._journal.append(self._key, event)
