"""Measures success against thinking speed: the expert of `apps/timed`, whose thoughts take time.

    python scripts/apps_timing.py [--tasks 100] [--tokens 50,200,800]

Before each action the expert is charged so many sampled tokens, at each of the speeds that the
environment has. It plans anew after each action, from the moment at which it then is, and gives up
where no plan is left. So what it misses, it misses for its speed alone. The speed "unlimited" is
`apps/timed`. Prints a table for docs/apps-clock.md: success in percent, over all tasks and by kind,
with Wilson's 95 % interval over all.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import replace

from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.environment import SPEEDS, Apps
from palaestra.environments.families.apps.timed.timed_atoms import TIMED

TURNS = 60  # of an episode


def solved(env: Apps, task: Task, tokens: int) -> bool:
    """Return whether the expert solves a task, with so many tokens sampled for each action."""
    env.reset(task)
    for _ in range(TURNS):
        plan = env.oracle()
        if not plan:
            return False
        step = env.step(replace(plan[0], spent=tokens))
        if step.terminated:
            return step.success
    return False


def kind_of(env: Apps, task: Task) -> str:
    """Return the kind of a task's goal."""
    env.reset(task)
    return env.goals[0].atom.name


def interval(right: int, number: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, in percent."""
    z, share = 1.96, right / number
    middle = share + z * z / (2 * number)
    half = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return tuple(100 * (middle + s * half) / (1 + z * z / number) for s in (-1, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--tokens", default="50,200,800")
    given = parser.parse_args()
    tasks = Apps.tasks("apps/timed").take(Split.TEST, given.tasks)
    kinds = [kind_of(Apps("timed"), task) for task in tasks]
    names = [atom.name for atom in TIMED]
    counts = ", ".join(f"{name} {kinds.count(name)}" for name in names)
    print(f"{len(tasks)} tasks of apps/timed, split test: {counts}.\n")
    print(
        f"| tokens per action | tokens per second | success | 95 % interval | {' | '.join(names)} |"
    )
    print("| --- " * (4 + len(names)) + "|")
    for tokens in map(int, given.tokens.split(",")):
        for speed in (None, *SPEEDS):
            env = Apps("timed" if speed is None else f"timed-{speed}")
            found: dict[str, list[bool]] = defaultdict(list)
            for task, kind in zip(tasks, kinds, strict=True):
                found[kind].append(solved(env, task, tokens))
            right = sum(sum(one) for one in found.values())
            low, high = interval(right, len(tasks))
            by_kind = " | ".join(
                f"{100 * sum(found[name]) / len(found[name]):.0f}" if found[name] else "–"
                for name in names
            )
            share = f"{100 * right / len(tasks):.1f} | {low:.1f} to {high:.1f}"
            print(f"| {tokens} | {speed or 'unlimited'} | {share} | {by_kind} |", flush=True)


if __name__ == "__main__":
    main()
