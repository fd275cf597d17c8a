"""The value of each state of an episode: how often whoever goes on from there succeeds.

`oracle`  the world's own solution goes on: 1 where it still solves the task, else 0. One try says
          it all, so the losing turn is exact as far as the oracle is complete: where it knows no
          way, or not in the turns that are left, the state counts as lost.
`chance`  random actions, several times: a rate with an interval.
`policy`  a model with the recorded agent and conversation, several times, by the rollout code.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from palaestra.core.environment import Capability, Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.graph import Call
from palaestra.core.journal import Event
from palaestra.evaluation.attribution.replay import Replay
from palaestra.evaluation.statistics import Interval, wilson
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.header import events_in_order


@dataclass(frozen=True, slots=True)
class Value:
    """How often going on from a state succeeded."""

    successes: int
    n: int
    way: int | None = None  # actions of the oracle to the end, where it solves the task

    @property
    def rate(self) -> float:
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        return wilson(self.successes, self.n)


LOST, SOLVED = Value(0, 1), Value(1, 1)


def oracle_values(replay: Replay, turns: int | None) -> list[Value]:
    """The value of each state under the oracle: before each turn, and after the last one.

    Args:
        replay: of the episode.
        turns: most actions of an episode; None: no limit but the world's own.

    Raises:
        CapabilityMissing: the world has no oracle.
        InputError, EnvironmentFault: see `Replay.at`.
    """
    if Capability.ORACLE not in replay.world.capabilities:
        raise CapabilityMissing(
            f"'{replay.episode.task.environment}' has no oracle; use --by chance or words."
        )
    return [
        _oracle_value(replay, turn, None if turns is None else turns - turn)
        for turn in range(len(replay.episode.steps))
    ] + [_end(replay, turns)]


def chance_values(replay: Replay, turns: int, samples: int, seed: int = 0) -> list[Value]:
    """The value of each state under chance, `samples` tries each.

    Args:
        replay: of the episode.
        turns: most actions of an episode.
        samples: tries per state.
        seed: of the chance.
    """
    found = []
    for turn in range(len(replay.episode.steps)):
        won = sum(
            _chance_solves(replay, turn, turns, random.Random(f"{seed} {turn} {k}"))
            for k in range(samples)
        )
        found.append(Value(won, samples))
    return [*found, _recorded(replay.episode)]


async def policy_values(rollout: Rollout, episode: Episode, samples: int) -> list[Value | None]:
    """The value of each state under the rollout's agent and models, `samples` tries each.

    The recorded conversation is lived again without a model up to each turn, so agent, model
    names and prompts must be those of the record.

    Returns:
        one value per turn and one for the end; None where no model chose the turn, or no try
        had a valid result.

    Raises:
        InputError: the agent asks something else than was recorded.
    """
    pasts = _pasts(episode)
    jobs = [
        Job(Key("explain", turn, member), episode.task)
        for turn in pasts
        for member in range(samples)
    ]
    branching = replace(rollout, store=_Pasts(pasts, episode))
    won: dict[int, list[bool]] = {}
    for lived in await branching.run(jobs):
        if lived.outcome.scored:
            won.setdefault(lived.key.group, []).append(lived.outcome.solved)
    found: list[Value | None] = []
    for turn in range(len(episode.steps)):
        of = won.get(turn)
        found.append(Value(sum(of), len(of)) if of else None)
    return [*found, _recorded(episode)]


# ── details ──────────────────────────────────────────────────────────────────


def _recorded(episode: Episode) -> Value:
    return SOLVED if episode.outcome.solved else LOST


def _end(replay: Replay, turns: int | None) -> Value:
    """The end: as recorded, unless the agent stopped while the world was open."""
    steps = replay.episode.steps
    over = bool(steps) and (steps[-1].transition.terminated or steps[-1].transition.truncated)
    left = None if turns is None else turns - len(steps)
    if over or (left is not None and left <= 0):
        return _recorded(replay.episode)
    return _oracle_value(replay, len(steps), left)


def _oracle_value(replay: Replay, turn: int, left: int | None) -> Value:
    """Let the oracle go on from before `turn`, asking again where it says only a part."""
    world = replay.at(turn)
    limit = 10_000 if left is None else left
    done = 0
    while done < limit:
        way = replay.guarded(lambda: list(world.oracle()))
        if not way or done + len(way) > limit:
            return LOST
        for action in way:
            transition = replay.act(action)
            done += 1
            if transition.terminated or transition.truncated:
                return Value(1, 1, done) if transition.success else LOST
    return LOST


def _chance_solves(replay: Replay, turn: int, turns: int, dice: random.Random) -> bool:
    world: Environment = replay.at(turn)
    for _ in range(turns - turn):
        transition = replay.act(replay.guarded(lambda: world.sample_action(dice)))
        if transition.terminated or transition.truncated:
            return transition.success
    return False


def _pasts(episode: Episode) -> dict[int, list[Event]]:
    """What had happened before the model was asked for each turn that a model chose."""
    events = events_in_order(episode)
    places = {event.index: i for i, event in enumerate(events) if isinstance(event, Call)}
    found: dict[int, list[Event]] = {}
    before = 0  # calls that were made before the step before
    for step in episode.steps:
        if step.call is not None and step.calls_before > before:
            found[step.index] = events[: places[before]]
        before = step.calls_before
    return found


class _Pasts:
    """A store in which every branch is an interrupted episode, and nothing is kept."""

    def __init__(self, pasts: Mapping[int, Sequence[Event]], episode: Episode) -> None:
        self._pasts, self._episode = pasts, episode

    def past(self, key: Key) -> list[Event]:
        return list(self._pasts[key.group])

    def episode(self, key: Key) -> Episode | None:
        return None

    def append(self, key: Key, event: Event) -> None:
        """The branch is lived once; its events are in its episode."""

    def finish(self, episode: Episode) -> None:
        """Likewise."""

    def forget(self, key: Key) -> None:
        raise InputError(
            f"The agent, the model or the world does not repeat turn {key.group + 1} of "
            f"{self._episode.key}; give the agent and the model that were recorded."
        )
