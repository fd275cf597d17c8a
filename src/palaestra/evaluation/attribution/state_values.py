"""The value of each state of an episode: the success rate of rollouts that continue from it.

`oracle`  the environment's oracle continues: 1 if it still solves the task, else 0. One rollout
          is enough, and the losing turn is exact if the oracle is complete: a state without a
          plan that fits into the remaining turns counts as lost.
`chance`  several rollouts of random actions: a rate with an interval.
`policy`  several rollouts of a model with the recorded agent and conversation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from palaestra.core.environment import Capability, Environment
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.graph import Call
from palaestra.core.rare_capabilities import sample_action
from palaestra.evaluation.attribution.turn_replay import TurnReplay
from palaestra.evaluation.statistics.intervals import Interval, wilson
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.header import events_in_order


@dataclass(frozen=True, slots=True)
class Value:
    """The success rate of rollouts from one state."""

    successes: int
    n: int
    plan_length: int | None = None  # the oracle's actions to the end, if it solves the task

    @property
    def rate(self) -> float:
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        return wilson(self.successes, self.n)


LOST, SOLVED = Value(0, 1), Value(1, 1)


def oracle_values(replay: TurnReplay, turns: int | None) -> list[Value]:
    """Return the value of each state under the oracle: before each turn, and after the last.

    Args:
        replay: of the episode.
        turns: most actions of an episode; None: only the environment's own limit.

    Raises:
        CapabilityMissing: the environment has no oracle.
        InputError, EnvironmentFault: see `TurnReplay.at`.
    """
    if Capability.ORACLE not in replay.env.spec.capabilities:
        raise CapabilityMissing(
            f"'{replay.episode.task.environment}' has no oracle; use --by chance or words."
        )
    return [
        _oracle_value(replay, turn, None if turns is None else turns - turn)
        for turn in range(len(replay.episode.steps))
    ] + [_end(replay, turns)]


def random_values(replay: TurnReplay, turns: int, samples: int, seed: int = 0) -> list[Value]:
    """Return the value of each state under random actions, from `samples` rollouts each.

    Args:
        replay: of the episode.
        turns: most actions of an episode.
        samples: rollouts per state.
        seed: of the random actions.
    """
    found = []
    for turn in range(len(replay.episode.steps)):
        won = sum(
            _random_solves(replay, turn, turns, random.Random(f"{seed} {turn} {k}"))
            for k in range(samples)
        )
        found.append(Value(won, samples))
    return [*found, _recorded(replay.episode)]


async def policy_values(rollout: Rollout, episode: Episode, samples: int) -> list[Value | None]:
    """Return the value of each state under the rollout's agent and models, `samples` tries each.

    The recorded conversation is replayed without a model up to each turn, so the agent, the model
    names and the prompts must be those of the record.

    Returns:
        one value per turn and one for the end; None if no model chose the turn, or no try had a
        valid result.

    Raises:
        InputError: the agent's prompts differ from the recorded ones.
    """
    prefixes = _prefixes(episode)
    jobs = [
        Job(Key("explain", turn, member), episode.task)
        for turn in prefixes
        for member in range(samples)
    ]
    branching = replace(rollout, store=_PrefixStore(prefixes, episode))
    won: dict[int, list[bool]] = {}
    for branch in await branching.run(jobs):
        if branch.outcome.scored:
            won.setdefault(branch.key.group, []).append(branch.outcome.solved)
    found: list[Value | None] = []
    for turn in range(len(episode.steps)):
        of = won.get(turn)
        found.append(Value(sum(of), len(of)) if of else None)
    return [*found, _recorded(episode)]


# ── details ──────────────────────────────────────────────────────────────────


def _recorded(episode: Episode) -> Value:
    return SOLVED if episode.outcome.solved else LOST


def _end(replay: TurnReplay, turns: int | None) -> Value:
    """Return the end's value: the record's, unless the agent stopped before the environment did."""
    steps = replay.episode.steps
    over = bool(steps) and (steps[-1].transition.terminated or steps[-1].transition.truncated)
    left = None if turns is None else turns - len(steps)
    if over or (left is not None and left <= 0):
        return _recorded(replay.episode)
    return _oracle_value(replay, len(steps), left)


def _oracle_value(replay: TurnReplay, turn: int, left: int | None) -> Value:
    """Let the oracle continue from before `turn`; ask it again if its plan is only a part."""
    env = replay.at(turn)
    limit = 10_000 if left is None else left
    done = 0
    while done < limit:
        plan = replay.guarded(lambda: list(env.oracle()))
        if not plan or done + len(plan) > limit:
            return LOST
        for action in plan:
            transition = replay.act(action)
            done += 1
            if transition.terminated or transition.truncated:
                return Value(1, 1, done) if transition.success else LOST
    return LOST


def _random_solves(replay: TurnReplay, turn: int, turns: int, rng: random.Random) -> bool:
    env: Environment = replay.at(turn)
    for _ in range(turns - turn):
        transition = replay.act(replay.guarded(lambda: sample_action(env, rng)))
        if transition.terminated or transition.truncated:
            return transition.success
    return False


def _prefixes(episode: Episode) -> dict[int, list[Event]]:
    """Return the events before the first call of each turn that a model chose."""
    events = events_in_order(episode)
    positions = {event.index: i for i, event in enumerate(events) if isinstance(event, Call)}
    found: dict[int, list[Event]] = {}
    before = 0  # calls before the previous step
    for step in episode.steps:
        if step.call is not None and step.calls_before > before:
            found[step.index] = events[: positions[before]]
        before = step.calls_before
    return found


class _PrefixStore:
    """A read-only store in which every branch is an interrupted episode."""

    def __init__(self, prefixes: Mapping[int, Sequence[Event]], episode: Episode) -> None:
        self._prefixes, self._episode = prefixes, episode

    def past(self, key: Key) -> list[Event]:
        return list(self._prefixes[key.group])

    def episode(self, key: Key) -> Episode | None:
        return None

    def append(self, key: Key, event: Event) -> None:
        """Drop the event: the branch runs once, and its episode contains its events."""

    def finish(self, episode: Episode) -> None:
        """Drop the episode, for the same reason."""

    def forget(self, key: Key) -> None:
        raise InputError(
            f"The agent, the model or the environment does not repeat turn {key.group + 1} of "
            f"{self._episode.key}; use the recorded agent and model."
        )
