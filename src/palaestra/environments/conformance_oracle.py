"""What a world's reference solution is held to."""

from __future__ import annotations

from palaestra.core.environment import Capability
from palaestra.environments.examination import Subject, demand, ended, follow, walk

ASKED = 60  # the longest way on which the oracle is asked at every step


def the_oracle_solves(subject: Subject) -> None:
    """From the start, and where it knows a way, from where a short walk led.

    It may know no way (some packages' own solutions are faulty), but not of every task tried.
    What a walk took may be missing before the world's limit, or be beyond mending.
    """
    world = subject.new()
    if Capability.ORACLE not in world.capabilities:
        return
    known = 0
    for task in subject.some():
        world.reset(task)
        before = world.signals()
        way = list(world.oracle())
        demand(world.signals() == before, f"task {task.id}: asking the oracle changed the world")
        if way:
            known += 1
            last = follow(world, way)[-1][0]
            demand(last.success, f"task {task.id}: the oracle's {len(way)} actions did not solve")
        (_, history), _ = walk(world, task, min(6, subject.steps))
        if not any(ended(step) for step, _ in history) and (way := list(world.oracle())):
            last = follow(world, way)[-1][0]
            demand(
                last.success or last.truncated,
                f"task {task.id}: after a short walk, the oracle's {len(way)} actions failed",
            )
    demand(known > 0, "the oracle knows no way for any task that was tried")


def the_oracle_leads_on(subject: Subject) -> None:
    """Asked anew after each of its actions, as the expert model asks it, it arrives as well.

    In at most twice as many actions as it named first; tried on the first way that is short.
    """
    world = subject.new()
    if Capability.ORACLE not in world.capabilities:
        return
    for task in subject.some():
        subject.trace.clear()
        world.reset(task)
        way = list(world.oracle())
        if not 1 < len(way) <= ASKED:
            continue
        for taken in range(2 * len(way)):
            ahead = list(world.oracle())
            demand(bool(ahead), f"task {task.id}: after {taken} of its actions it knows no way")
            last = follow(world, ahead[:1])[-1][0]
            if ended(last):
                break
        demand(
            last.success,
            f"task {task.id}: asked at every step, the oracle did not arrive in {2 * len(way)} "
            f"actions; asked once, it named {len(way)}",
        )
        return
