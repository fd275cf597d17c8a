"""Living in a world under examination, and saying what is wrong with it.

What the clauses of `conformance.py` are written with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments import registry

History = list[tuple[Transition, Signals]]


class Broken(AssertionError):
    """An environment breaks a clause, in words."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A reset or a step of a world under examination."""

    world: int  # in the order of making
    did: str
    saw: str


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment to be examined."""

    make: Callable[[], Environment]
    tasks: TaskSet
    steps: int = 25  # length of a random walk
    per_split: int = 2  # tasks of each split that are tried
    trace: list[Happening] = field(default_factory=list)  # of what happens under examination

    @classmethod
    def of(cls, id: str, steps: int = 25, per_split: int = 2) -> Subject:
        """The environment of that id; raises like `registry.make`."""
        return cls(lambda: registry.make(id), registry.tasks(id), steps, per_split)

    def new(self) -> Environment:
        """Another world, whose resets and steps are taken down."""
        world: Any = self.make()
        number = len({happening.world for happening in self.trace})
        reset, step = world.reset, world.step

        def kept_reset(task: Task) -> Observation:
            self.trace.append(Happening(number, f"reset to {task.id} (seed {task.seed})", "…"))
            seen: Observation = reset(task)
            self.trace[-1] = replace(self.trace[-1], saw=seen.text)
            return seen

        def kept_step(action: Action) -> Transition:
            self.trace.append(Happening(number, f"step {action.text!r}", "…"))
            seen: Transition = step(action)
            self.trace[-1] = replace(self.trace[-1], saw=_told(seen))
            return seen

        world.reset, world.step = kept_reset, kept_step
        return world

    def some(self) -> list[Task]:
        """A few tasks of each split that has any."""
        found = []
        for split in Split:
            count = self.tasks.count(split)
            found += self.tasks.take(
                split, self.per_split if count is None else min(count, self.per_split)
            )
        return found


# ── living in a world ────────────────────────────────────────────────────────

Told = tuple[tuple[Observation, Signals], History]


def start(world: Environment, task: Task) -> tuple[Observation, Signals]:
    return world.reset(task), world.signals()


def walk(world: Environment, task: Task, steps: int) -> tuple[Told, list[Action]]:
    """Act by chance until the steps or the episode end."""
    begun = start(world, task)
    dice = random.Random(task.seed)
    history: History = []
    actions: list[Action] = []
    while len(actions) < steps and not (history and ended(history[-1][0])):
        actions.append(world.sample_action(dice))
        history.append((world.step(actions[-1]), world.signals()))
    return (begun, history), actions


def live(world: Environment, task: Task, actions: Sequence[Action]) -> Told:
    return start(world, task), follow(world, actions)


def follow(world: Environment, actions: Iterable[Action]) -> History:
    """Act until the actions or the episode end."""
    history: History = []
    for action in actions:
        history.append((world.step(action), world.signals()))
        if ended(history[-1][0]):
            break
    return history


def expert_or_walk(world: Environment, task: Task, steps: int) -> History:
    if Capability.ORACLE in world.capabilities:
        world.reset(task)
        return follow(world, world.oracle())
    return walk(world, task, steps)[0][1]


def ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def state_keys(told: Told) -> list[str | None]:
    begun, history = told
    return [begun[1].state_key, *(signals.state_key for _, signals in history)]


# ── saying what is wrong ─────────────────────────────────────────────────────


def fail(words: str) -> NoReturn:
    raise Broken(words)


def demand(holds: bool, words: str) -> None:
    if not holds:
        fail(words)


def same(first: object, second: object, which: str) -> None:
    """Both are what two lives told; names the first place where they differ."""
    if first == second:
        return
    one, other = list(_flat(first)), list(_flat(second))
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            fail(f"{which}: event {number} was {shortened(a)}, then {shortened(b)}")
    fail(f"{which}: {len(one)} events, then {len(other)}")


def _flat(told: object) -> Iterable[object]:
    if isinstance(told, (list, tuple)):
        for part in told:
            yield from _flat(part)
    else:
        yield told


def shortened(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 300 else text[:298] + " …"


def _told(transition: Transition) -> str:
    ends = [name for name in ("terminated", "truncated", "success") if getattr(transition, name)]
    marks = [*([] if transition.valid else ["not understood"]), *ends]
    if transition.reward:
        marks.append(f"reward {transition.reward}")
    return transition.observation.text + (f"  [{', '.join(marks)}]" if marks else "")
