"""Clauses that need a minute: many episodes, every oracle, memory."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

from palaestra.core.environment import Action, Capability
from palaestra.core.task import Split
from palaestra.environments.examination import Subject, demand, ended, follow, walk

EPISODES, SECONDS, SHORT = 1000, 60.0, 8  # episodes, at most so long, of so many steps
GROWTH = 16 * 2**20  # bytes over the second half of them, beyond which it is a leak
SLIPS = 1000
ODD = "\\#@$%^&~|<>{}[]()`'\"/;:\t\x00\x1b\u2028\u202eé🏃"
"""What interpreters, shells, parsers and terminals may take for theirs."""

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


def slips_are_answered_in_words(subject: Subject) -> None:
    """One odd character in an action raises nothing; not understood, it changes nothing."""
    world, dice = subject.new(), random.Random(0)
    tasks = subject.some()
    began, said = time.monotonic(), 0
    while said < SLIPS and time.monotonic() - began < SECONDS:
        task = tasks[said % len(tasks)]
        subject.trace.clear()
        world.reset(task)
        for _ in range(SHORT):
            words = _slip(world.sample_action(dice), dice)
            before = world.signals()
            seen = world.step(Action(words))
            said += 1
            changed = world.signals() != before
            demand(seen.valid or not changed, f"task {task.id}: {words!r} was no action, and did")
            if ended(seen):
                break


def _slip(action: Action, dice: random.Random) -> str:
    """The words of an action, or of its call, with an odd character somewhere."""
    words = action.text or (str(action.call) if action.call else "")
    place = dice.randrange(len(words) + 1)
    return words[:place] + dice.choice(ODD) + words[place:]


DEEP: tuple[Callable[[Subject], None], ...] = (
    memory_is_stable,
    the_oracle_solves_many,
    chance_comes_to_an_end,
    slips_are_answered_in_words,
)
