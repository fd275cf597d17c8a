"""The gate: what a task must pass before anybody meets it.

The reference solves it. Doing nothing, a constant refusal and a constant hand-over to a person do
not, nor does the reference without one of several goals. Each near miss, the reference with one
slot changed, is rejected. Each declared alternative is accepted. Where things happen by themselves,
each of them happens in the reference run, and waiting alone does not solve it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.goal import MAIN, Slots
from palaestra.environments.families.apps.composing.policy import broken
from palaestra.environments.families.apps.composing.verifier import Judge, Verdict, Wanted, run
from palaestra.environments.families.apps.world import World

CONSTANT = ("", "I cannot do that.", "I hand this over to a person.")
"""Answers without a deed: nothing, a refusal, a hand-over."""

WAITING = 3 * 60 * 60  # seconds in which all that the tasks schedule has begun


def judged(world: World, ways: list[Wanted], answer: object) -> Verdict:
    """Return the verdict on a world as it is."""
    said = None if answer is None else str(answer)
    timing = all(window.met(world) for window in ways[0].windows)
    judge = Judge(world.state.columns, world.state.event_rows())
    rules = broken(ways[0].policy, world.calls)
    return judge.verdict(world.state.changes(), said, ways, timing, rules)


def rejection(world: World, task: Composition, rng: random.Random) -> str | None:
    """Return why a task must not be used; None if it passes."""
    ran, _ = task.reference(world)
    if ran.refused:
        return f"the reference is refused: {ran.refused}"
    ways = task.ways(world)
    if not ways[0].rows and ways[0].answer is None:
        return "the reference changes nothing and answers nothing"
    if not _after(world, task, ways).success:
        return "the reference does not solve it"
    if any(judged(world, ways, answer).success for answer in CONSTANT):
        return "doing nothing solves it"
    if world.schedule.events:
        if silent := _silent(world, task):
            return f"the event '{silent[0]}' does not happen in the reference run"
        if _after_waiting(world, ways).success:
            return "waiting solves it"
    for goal in task.goals if len(task.goals) > 1 else ():
        others = tuple(other for other in task.goals if other is not goal)
        if _after(world, replace(task, goals=others), ways).success:
            return f"the other goals do what '{goal.atom.name}' asks for"
    for number, slots in near_misses(world, task, rng):
        if _after(world, task, ways, number, slots).success:
            return f"a near miss of '{task.goals[number].atom.name}' passes"
    return None


def _silent(world: World, task: Composition) -> list[str]:
    """Return the events that have not happened at the end of the reference."""
    fork = world.fork()
    run(task.steps(), fork, MAIN)
    fork.close()
    return fork.schedule.silent()


def _after_waiting(world: World, ways: list[Wanted]) -> Verdict:
    """Return the verdict on a fork in which an agent only waits, for three hours."""
    fork = world.fork()
    fork.advance(WAITING)
    found = judged(fork, ways, "")
    fork.close()
    return found


def near_misses(world: World, task: Composition, rng: random.Random) -> Iterator[tuple[int, Slots]]:
    """Yield the near misses of each goal: its number, and its slots."""
    for number, goal in enumerate(task.goals):
        for slots in goal.atom.near_misses(goal.slots, world, rng):
            yield number, slots


def called(world: World, task: Composition, rng: random.Random) -> list[str]:
    """Return the APIs that the reference and the near misses call: such tools tell nothing."""
    calls = list(task.reference(world)[0].calls)
    for number, slots in near_misses(world, task, rng):
        fork = world.fork()
        calls += run(task.steps(number, slots), fork, MAIN).calls
        fork.close()
    return [call.api for call in calls]


def _after(
    world: World,
    task: Composition,
    ways: list[Wanted],
    number: int = -1,
    slots: Slots | None = None,
) -> Verdict:
    """Return the verdict on a fork after the reference, with other slots for one goal."""
    fork = world.fork()
    ran = run(task.steps(number, slots), fork, MAIN)
    found = judged(fork, ways, "" if ran.answer is None else ran.answer)
    fork.close()
    return found
