"""Trajectory verification: the recorded actions of an episode, repeated in a fresh environment.

Any agent may have recorded the episode, in this process or through the gateway. The environment
must return the same observations, rewards, signals and end; every difference is reported with its
turn. No model is called. The environment runs in this process, as in `palaestra play`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from palaestra.core.environment import Environment, Observation, Signals, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.rollout.guarded_environment import LocalEnvironment

EnvironmentFactory = Callable[[str], Environment]
"""Environment id to a fresh environment, such as `registry.make`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value in which the environment differs from the record."""

    turn: int  # 1 is the first action; 0 is the reset
    what: str  # a field of `Transition` or `Signals`; "end" or "fault"
    then: Any
    now: Any

    def __str__(self) -> str:
        where = f"turn {self.turn}" if self.turn else "the reset"
        return f"{where}: {self.what} was {_short(self.then)} and is {_short(self.now)}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of repeating one episode's actions."""

    episode: Episode
    turns: int  # repeated actions
    differences: tuple[Difference, ...]
    deterministic: bool  # whether the environment declares itself deterministic

    @property
    def same(self) -> bool:
        return not self.differences


async def verify(episode: Episode, make_env: EnvironmentFactory) -> Verification:
    """Repeat the episode's actions until the environment ends.

    Raises:
        InputError: the episode never began, or the environment does not exist here.
    """
    if episode.observation is None:
        raise InputError(
            f"{episode.key} has no first observation, so it cannot be replayed; "
            "name an episode that began."
        )
    env = LocalEnvironment(make_env(episode.task.environment))
    found: list[Difference] = []
    turns = 0
    try:
        seen, signals = await env.reset(episode.task)
        found += _observed(0, episode.observation, seen)
        for step in episode.steps:
            found += _compared(turns, step.before, signals)
            transition, signals = await env.step(step.action)
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
        await env.close()
    return Verification(episode, turns, tuple(found), env.deterministic)


def _compared(
    turn: int, then: Transition | Signals, now: Transition | Signals
) -> Iterator[Difference]:
    for field in fields(then):
        old, new = getattr(then, field.name), getattr(now, field.name)
        if isinstance(old, Observation):
            yield from _observed(turn, old, new)
        elif old != new and (old or field.name != "privileged"):  # older records have none
            yield Difference(turn, field.name, old, new)


def _observed(turn: int, then: Observation, now: Observation) -> Iterator[Difference]:
    if then.text != now.text:
        yield Difference(turn, "observation", then.text, now.text)
    if then.images != now.images:
        sizes = [sum(image.size for image in seen.images) for seen in (then, now)]
        yield Difference(turn, "picture", f"{sizes[0]} bytes", f"{sizes[1]} others")


def _over(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:118]} …"
