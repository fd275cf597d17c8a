"""Slow clauses, about a minute each: many episodes, every oracle, memory."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import EnvironmentFault
from palaestra.core.rare_capabilities import sample_action, signals_of
from palaestra.core.task import Split
from palaestra.environments.conformance.subject import Subject, ended, follow, require, walk

EPISODES, SECONDS, SHORT = 1000, 60.0, 8  # most episodes, most seconds, steps per episode
GROWTH = 16 * 2**20  # bytes over the second half of them; more is a leak
SLIPS = 1000
ODD = "\\#@$%^&~|<>{}[]()`'\"/;:\t\x00\x1b\u2028\u202eé🏃"
"""Characters that interpreters, shells, parsers and terminals may treat specially."""

ORACLES = 40  # tasks per split for which the oracle must solve the task or return no plan


def memory_is_stable(subject: Subject) -> None:
    """Require that a thousand short episodes (or a minute of them) do not leak memory."""
    import psutil

    process = psutil.Process()

    def resident() -> int:
        gc.collect()
        processes = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in processes)

    env = subject.new()
    tasks = subject.some()
    began, done, middle = time.monotonic(), 0, 0
    while done < EPISODES and time.monotonic() - began < SECONDS:
        walk(env, tasks[done % len(tasks)], SHORT)
        subject.trace.clear()
        done += 1
        if done == EPISODES // 2 or (not middle and time.monotonic() - began > SECONDS / 2):
            middle = resident()
    grown = resident() - middle
    require(grown < GROWTH, f"over half of {done} episodes, memory grew by {grown / 2**20:.0f} MiB")


def the_oracle_solves_many(subject: Subject) -> None:
    """Require that each plan for the first tasks of each split solves its task."""
    env = subject.new()
    if Capability.ORACLE not in env.spec.capabilities:
        return
    for split in Split:
        count = subject.tasks.count(split)
        for task in subject.tasks.take(split, ORACLES if count is None else min(count, ORACLES)):
            subject.trace.clear()
            env.reset(task)
            plan = list(env.oracle())
            history = follow(env, plan)
            solved = bool(history) and history[-1][0].success
            require(not plan or solved, f"task {task.id}: {len(plan)} actions did not solve it")


def chance_comes_to_an_end(subject: Subject) -> None:
    """Require that long random episodes raise nothing and do not continue after their end."""
    env = subject.new()
    for task in subject.some():
        subject.trace.clear()
        (_, history), _ = walk(env, task, 40 * subject.steps)
        require(
            not any(ended(step) for step, _ in history[:-1]), "an episode went on after its end"
        )


def slips_are_answered_in_words(subject: Subject) -> None:
    """Require that one odd character in an action raises nothing; invalid, it changes nothing.

    It may make a player of the environment's user say what is not in its part, which is a fault.
    """
    env, rng = subject.new(), random.Random(0)
    tasks = subject.some()
    began, count = time.monotonic(), 0
    while count < SLIPS and time.monotonic() - began < SECONDS:
        task = tasks[count % len(tasks)]
        subject.trace.clear()
        env.reset(task)
        for _ in range(SHORT):
            text = _slip(sample_action(env, rng), rng)
            before = signals_of(env)
            count += 1
            try:
                seen = env.step(Action(text))
            except EnvironmentFault as fault:
                if fault.kind != "user":
                    raise
                break
            changed = signals_of(env) != before
            require(
                seen.valid or not changed, f"task {task.id}: {text!r} was invalid, but changed it"
            )
            if ended(seen):
                break


def _slip(action: Action, rng: random.Random) -> str:
    """Return the text of an action, or of its call, with an odd character inserted."""
    text = action.text or (str(action.call) if action.call else "")
    index = rng.randrange(len(text) + 1)
    return text[:index] + rng.choice(ODD) + text[index:]


DEEP: tuple[Callable[[Subject], None], ...] = (
    memory_is_stable,
    the_oracle_solves_many,
    chance_comes_to_an_end,
    slips_are_answered_in_words,
)
