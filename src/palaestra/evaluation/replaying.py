"""Replaying: the recorded actions of an episode, done again in a fresh world of the same task.

Whoever acted then (an agent of this process, or a foreign program through the gateway), the world
must answer as it did: observations, rewards, signals and the end. What it answers otherwise is
named, turn by turn. No model is asked. The world lives in this process, as in `palaestra play`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from palaestra.core.environment import Environment, Observation, Signals, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.rollout.worlds import LocalWorld

Worlds = Callable[[str], Environment]
"""Environment id to a fresh world, such as `registry.make`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the world does otherwise than it is recorded."""

    turn: int  # 1 is the first action; 0 is the reset
    what: str  # a field of `Transition` or `Signals`; "end" or "fault"
    then: Any
    now: Any

    def __str__(self) -> str:
        where = f"turn {self.turn}" if self.turn else "the reset"
        return f"{where}: {self.what} was {_short(self.then)} and is {_short(self.now)}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of one episode."""

    episode: Episode
    turns: int  # actions done again
    differences: tuple[Difference, ...]
    deterministic: bool  # whether the world promises to repeat itself

    @property
    def same(self) -> bool:
        return not self.differences


async def replay(episode: Episode, worlds: Worlds) -> Replayed:
    """Live the episode's actions again, as far as the world goes on.

    Raises:
        InputError: the episode never began, or there is no such world here.
    """
    if episode.observation is None:
        raise InputError(f"{episode.key} has no first observation, so nothing can be replayed.")
    world = LocalWorld(worlds(episode.task.environment))
    found: list[Difference] = []
    turns = 0
    try:
        seen, signals = await world.reset(episode.task)
        found += _observed(0, episode.observation, seen)
        for step in episode.steps:
            found += _compared(turns, step.before, signals)
            transition, signals = await world.step(step.action)
            turns += 1
            found += _compared(turns, step.transition, transition)
            if _over(transition) and turns < len(episode.steps):
                found.append(Difference(turns, "end", f"turn {len(episode.steps)}", "here"))
                break
        else:
            if episode.progress is not None and signals.progress != episode.progress:
                found.append(Difference(turns, "progress", episode.progress, signals.progress))
    except EnvironmentFault as fault:
        found.append(Difference(turns + 1, "fault", None, str(fault)))
    finally:
        await world.close()
    return Replayed(episode, turns, tuple(found), world.deterministic)


def _compared(
    turn: int, then: Transition | Signals, now: Transition | Signals
) -> Iterator[Difference]:
    for field in fields(then):
        old, new = getattr(then, field.name), getattr(now, field.name)
        if isinstance(old, Observation):
            yield from _observed(turn, old, new)
        elif old != new:
            yield Difference(turn, field.name, old, new)


def _observed(turn: int, then: Observation, now: Observation) -> Iterator[Difference]:
    if then.text != now.text:
        yield Difference(turn, "observation", then.text, now.text)
    if then.image != now.image:
        yield Difference(turn, "picture", f"{len(then.image)} bytes", f"{len(now.image)} others")


def _over(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:118]} …"
