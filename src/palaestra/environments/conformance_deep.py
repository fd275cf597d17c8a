"""Clauses that need a minute: many episodes, every oracle, memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from palaestra.core.environment import Capability
from palaestra.core.task import Split
from palaestra.environments.examination import Subject, demand, ended, follow, walk

EPISODES, SECONDS, SHORT = 1000, 60.0, 8  # episodes, at most so long, of so many steps
GROWTH = 16 * 2**20  # bytes over the second half of them, beyond which it is a leak
ORACLES = 40  # tasks of each split that the oracle must solve or know no way for


def memory_is_stable(subject: Subject) -> None:
    """A thousand short episodes (or a minute of them) in one world do not let it grow."""
    import psutil

    process = psutil.Process()

    def resident() -> int:
        gc.collect()
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)

    world = subject.new()
    tasks = subject.some()
    began, done, middle = time.monotonic(), 0, 0
    while done < EPISODES and time.monotonic() - began < SECONDS:
        walk(world, tasks[done % len(tasks)], SHORT)
        subject.trace.clear()
        done += 1
        if done == EPISODES // 2 or (not middle and time.monotonic() - began > SECONDS / 2):
            middle = resident()
    grown = resident() - middle
    demand(grown < GROWTH, f"over half of {done} episodes, memory grew by {grown / 2**20:.0f} MiB")


def the_oracle_solves_many(subject: Subject) -> None:
    """Of each split's first tasks, each one for which it names a way."""
    world = subject.new()
    if Capability.ORACLE not in world.capabilities:
        return
    for split in Split:
        count = subject.tasks.count(split)
        for task in subject.tasks.take(split, ORACLES if count is None else min(count, ORACLES)):
            subject.trace.clear()
            world.reset(task)
            way = list(world.oracle())
            told = follow(world, way)
            solved = bool(told) and told[-1][0].success
            demand(not way or solved, f"task {task.id}: {len(way)} actions did not solve it")


def chance_comes_to_an_end(subject: Subject) -> None:
    """Random episodes of great length never raise, and after their end nothing moves."""
    world = subject.new()
    for task in subject.some():
        subject.trace.clear()
        (_, history), _ = walk(world, task, 40 * subject.steps)
        demand(not any(ended(step) for step, _ in history[:-1]), "an episode went on after its end")


DEEP: tuple[Callable[[Subject], None], ...] = (
    memory_is_stable,
    the_oracle_solves_many,
    chance_comes_to_an_end,
)
