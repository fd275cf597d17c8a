"""The subject of a conformance check: rolling it out, tracing it, and reporting failures.

The clauses in `clauses.py` are built from these functions.
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
from palaestra.core.rare_capabilities import sample_action, signals_of
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments import registry

History = list[tuple[Transition, Signals]]


class Broken(AssertionError):
    """An environment breaks a clause; the message says how."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A reset or a step of a checked environment."""

    environment: int  # the number of the environment, in the order of creation
    did: str
    saw: str


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment to be checked."""

    make: Callable[[], Environment]
    tasks: TaskSet
    steps: int = 25  # length of a random walk
    per_split: int = 2  # tasks tried per split
    trace: list[TraceEvent] = field(default_factory=list)  # resets and steps so far

    @classmethod
    def of(cls, id: str, steps: int = 25, per_split: int = 2) -> Subject:
        """Return the subject for an environment's id; raises like `registry.make`."""
        return cls(lambda: registry.make(id), registry.tasks(id), steps, per_split)

    def new(self) -> Environment:
        """Make another environment whose resets and steps are added to the trace."""
        env: Any = self.make()
        number = len({event.environment for event in self.trace})
        reset, step = env.reset, env.step

        def recorded_reset(task: Task) -> Observation:
            self.trace.append(TraceEvent(number, f"reset to {task.id} (seed {task.seed})", "…"))
            seen: Observation = reset(task)
            self.trace[-1] = replace(self.trace[-1], saw=seen.text)
            return seen

        def recorded_step(action: Action) -> Transition:
            self.trace.append(TraceEvent(number, f"step {action.text!r}", "…"))
            seen: Transition = step(action)
            self.trace[-1] = replace(self.trace[-1], saw=_summary(seen))
            return seen

        env.reset, env.step = recorded_reset, recorded_step
        return env

    def some(self) -> list[Task]:
        """Return a few tasks of each split that has any."""
        found = []
        for split in Split:
            count = self.tasks.count(split)
            found += self.tasks.take(
                split, self.per_split if count is None else min(count, self.per_split)
            )
        return found


# ── rolling out ──────────────────────────────────────────────────────────────

Rollout = tuple[tuple[Observation, Signals], History]


def start(env: Environment, task: Task) -> tuple[Observation, Signals]:
    return env.reset(task), signals_of(env)


def walk(env: Environment, task: Task, steps: int) -> tuple[Rollout, list[Action]]:
    """Do random actions until the steps or the episode end."""
    begun = start(env, task)
    history, actions = go_on(env, random.Random(task.seed), steps)
    return (begun, history), actions


def go_on(env: Environment, rng: random.Random, steps: int) -> tuple[History, list[Action]]:
    """Do random actions from the present state until the steps or the episode end."""
    history: History = []
    actions: list[Action] = []
    while len(actions) < steps and not (history and ended(history[-1][0])):
        actions.append(sample_action(env, rng))
        history.append((env.step(actions[-1]), signals_of(env)))
    return history, actions


def roll_out(env: Environment, task: Task, actions: Sequence[Action]) -> Rollout:
    return start(env, task), follow(env, actions)


def follow(env: Environment, actions: Iterable[Action]) -> History:
    """Do the actions until they or the episode end."""
    history: History = []
    for action in actions:
        history.append((env.step(action), signals_of(env)))
        if ended(history[-1][0]):
            break
    return history


def expert_or_walk(env: Environment, task: Task, steps: int) -> History:
    if Capability.ORACLE in env.spec.capabilities:
        env.reset(task)
        return follow(env, env.oracle())
    return walk(env, task, steps)[0][1]


def ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def state_keys(rollout: Rollout) -> list[str | None]:
    begun, history = rollout
    return [begun[1].state_key, *(signals.state_key for _, signals in history)]


# ── reporting failures ───────────────────────────────────────────────────────


def fail(text: str) -> NoReturn:
    raise Broken(text)


def require(holds: bool, text: str) -> None:
    if not holds:
        fail(text)


def require_equal(first: object, second: object, which: str) -> None:
    """Require that two rollouts are equal; report the first event in which they differ."""
    if first == second:
        return
    one, other = list(_flat(first)), list(_flat(second))
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            fail(f"{which}: event {number} was {shortened(a)}, then {shortened(b)}")
    fail(f"{which}: {len(one)} events, then {len(other)}")


def _flat(rollout: object) -> Iterable[object]:
    if isinstance(rollout, (list, tuple)):
        for part in rollout:
            yield from _flat(part)
    else:
        yield rollout


def shortened(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 300 else text[:298] + " …"


def _summary(transition: Transition) -> str:
    ends = [name for name in ("terminated", "truncated", "success") if getattr(transition, name)]
    marks = [*([] if transition.valid else ["not understood"]), *ends]
    if transition.reward:
        marks.append(f"reward {transition.reward}")
    return transition.observation.text + (f"  [{', '.join(marks)}]" if marks else "")
