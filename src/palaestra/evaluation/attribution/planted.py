"""Planted faults: an oracle's episodes with one wrong action, to measure attributions by.

Up to the fault every action is the oracle's, so the fault is the only one that can have lost the
episode, whatever comes behind it: the oracle goes on where it knows a way, and chance where it
does not. An episode that succeeds in spite of the fault is no failure, and another fault is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import ToolCall
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.task import Split, Task
from palaestra.evaluation.attribution.attribution import Attribution
from palaestra.evaluation.attribution.dependencies import WORD
from palaestra.evaluation.attribution.replay import Replay, Worlds
from palaestra.evaluation.statistics import Interval, wilson

TRIES = 24  # faults tried on one task before it is left out
LONGEST = 400  # actions of a reference episode


@dataclass(frozen=True, slots=True)
class Planted:
    """A failed episode, and the turn that lost it."""

    episode: Episode
    turn: int
    turns: int  # the most actions that were allowed


Method = Callable[[Planted, Replay], Attribution]


@dataclass(frozen=True, slots=True)
class Precision:
    """How often one method named the planted turn."""

    right: Interval
    near: Interval  # the planted turn, or one beside it
    silent: int  # episodes for which it named none


def plant(world: Environment, task: Task, dice: random.Random, slack: int | None) -> Planted | None:
    """A failed episode of `task` with one fault.

    Args:
        world: of the task's environment; it is reset.
        task: one that the oracle solves.
        dice: chooses turn and fault.
        slack: actions allowed beyond the oracle's own way, so that wasting time loses, too;
            None: the world's `typical_turns`, in which only what cannot be undone loses.

    Returns:
        None where the oracle does not solve the task, or no fault tried loses it.

    Raises:
        CapabilityMissing: the world has no oracle.
    """
    if Capability.ORACLE not in world.capabilities:
        raise CapabilityMissing(
            f"'{task.environment}' has no oracle, so no fault can be planted in its episodes."
        )
    way = reference(world, task)
    if not way:
        return None
    length = len(way)
    turns = length + slack if slack is not None else max(length, world.typical_turns)
    for _ in range(TRIES):
        turn = dice.randrange(length)
        found = _lived(world, task, way[: turn + 1], turns, dice)
        if found is not None and not found.outcome.solved:
            return Planted(found, turn, turns)
    return None


def planted(
    worlds: Worlds, tasks: Sequence[Task], *, slack: int | None = None, seed: int = 0
) -> list[Planted]:
    """One failed episode per task, of the tasks in which a fault loses."""
    found = []
    for number, task in enumerate(tasks):
        world = worlds(task.environment)
        try:
            one = plant(world, task, random.Random(f"{seed} {task.id}"), slack)
        finally:
            world.close()
        if one is not None:
            key = Key("planted", number)
            found.append(replace(one, episode=replace(one.episode, key=key)))
    return found


def precision(
    worlds: Worlds, cases: Sequence[Planted], methods: Mapping[str, Method]
) -> dict[str, Precision]:
    """How often each method names the planted turn.

    Raises:
        InputError: there is no case.
    """
    if not cases:
        raise InputError(
            "No fault loses any of these tasks; take more tasks, or fewer turns (--slack 0)."
        )
    right: dict[str, list[bool]] = {name: [] for name in methods}
    near: dict[str, list[bool]] = {name: [] for name in methods}
    silent = dict.fromkeys(methods, 0)
    for case in cases:
        with Replay.of(case.episode, worlds) as replay:
            for name, method in methods.items():
                turn = method(case, replay).turn
                silent[name] += turn is None
                right[name].append(turn == case.turn)
                near[name].append(turn is not None and abs(turn - case.turn) <= 1)
    n = len(cases)
    return {
        name: Precision(wilson(sum(right[name]), n), wilson(sum(near[name]), n), silent[name])
        for name in methods
    }


def fresh_tasks(environment: str, count: int, worlds: Worlds) -> list[Task]:
    """The first training tasks of an environment."""
    world = worlds(environment)
    try:
        return world.tasks(environment).take(Split.TRAIN, count)
    finally:
        world.close()


def reference(world: Environment, task: Task) -> list[Action]:
    """The oracle's way through a task; empty where it does not solve it."""
    world.reset(task)
    done: list[Action] = []
    while len(done) < LONGEST:
        way = world.oracle()
        if not way:
            return []
        for action in way:
            done.append(action)
            transition = world.step(action)
            if transition.terminated or transition.truncated:
                return done if transition.success else []
    return []


def references(worlds: Worlds, tasks: Sequence[Task]) -> dict[str, list[Action]]:
    """Task id to the oracle's way, of the tasks that it solves; all of one environment."""
    world = worlds(tasks[0].environment)
    try:
        found = {task.id: reference(world, task) for task in tasks}
    finally:
        world.close()
    return {id: way for id, way in found.items() if way}


# ── details ──────────────────────────────────────────────────────────────────


def _lived(
    world: Environment, task: Task, way: Sequence[Action], turns: int, dice: random.Random
) -> Episode | None:
    """An episode that goes the oracle's `way`, but for the last action of it, which is wrong."""
    first = world.reset(task)
    seen, steps, after = [first.text], list[Step](), list[Action]()
    outcome = Outcome.truncated(Limit.TURNS)
    while len(steps) < turns:
        before = world.signals()
        if len(steps) < len(way) - 1:
            action = way[len(steps)]
        elif len(steps) == len(way) - 1:
            wrong = _wrong(world, way[-1], dice, seen)
            if wrong is None:
                return None
            action = wrong
        else:
            after = after or list(world.oracle()) or [world.sample_action(dice)]
            action = after.pop(0)
        transition = world.step(action)
        steps.append(Step(len(steps), None, action, transition, before))
        seen.append(transition.observation.text)
        if transition.terminated or transition.truncated:
            outcome = Outcome.failure()
            if transition.success:
                outcome = Outcome.success()
            elif transition.truncated:
                outcome = Outcome.truncated(Limit.ENVIRONMENT)
            break
    usage = Usage(turns=len(steps))
    return Episode(Key("planted", 0), task, "oracle", first, (), tuple(steps), outcome, usage)


def _wrong(
    world: Environment, right: Action, dice: random.Random, seen: Sequence[str]
) -> Action | None:
    """Another action than the oracle's: a changed argument of its call, or what chance says."""
    for _ in range(TRIES):
        if right.call is not None and right.call.arguments and dice.random() < 0.5:
            action = _changed(right.call, dice, seen)
        else:
            action = world.sample_action(dice)
        if (action.text, action.call) != (right.text, right.call):
            return action
    return None


def _changed(call: ToolCall, dice: random.Random, seen: Sequence[str]) -> Action:
    """The call with one argument changed: a number beside it, or another word that was seen."""
    name = dice.choice(sorted(call.arguments))
    value = call.arguments[name]
    other: object = value
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int):
        other = value + dice.choice((-1, 1))
    elif isinstance(value, float):
        other = value + dice.choice((-1.0, 1.0))
    elif isinstance(value, str):
        words = sorted({w for text in seen for w in WORD.findall(text)} - {value})
        other = dice.choice(words or ["another"])
    changed = ToolCall(call.name, {**call.arguments, name: other})
    return Action(str(changed), changed)
