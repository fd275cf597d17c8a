"""The table of docs/results/environments.md: results of the reference agents by environment.

    python scripts/environments_table.py [ID …] [--tasks 20] [--json FILE]

For each id: success of the oracle (the environment's reference solution, if declared), of random
actions (`sample_action`) and of the null agent (empty replies), on the first tasks of the test
split (of train, without a test split), and the cost of a step in the adapter and with palaestra's
checks (`GuardedEnvironment`: every answer is converted to JSON and back).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median

from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.rollout.guarded_environment import GuardedEnvironment

SILENT = 3  # empty replies in a row after which the null agent's episode ends


@dataclass(frozen=True, slots=True)
class Row:
    """One environment, measured."""

    id: str
    tasks: int
    oracle: int | None  # tasks solved; None: not declared
    unknown: int  # tasks for which the oracle has no plan
    chance: int | None  # None: the environment samples no action
    null: int
    steps: int  # of random actions
    step_us: float  # of the adapter, in the median
    checked_us: float  # through GuardedEnvironment


def measure(id: str, count: int, seconds: float) -> Row:
    """Raises InputError where the environment cannot be made."""
    listed = registry.tasks(id)
    split = Split.TEST if listed.count(Split.TEST) != 0 else Split.TRAIN
    size = listed.count(split)
    tasks = listed.take(split, count if size is None else min(count, size))
    world = registry.make(id)
    keeper = GuardedEnvironment(registry.make(id), id)
    try:
        limit = world.spec.typical_turns
        oracle, unknown = None, 0
        if Capability.ORACLE in world.spec.capabilities:
            ways = [_solves(world, task) for task in tasks]
            oracle, unknown = sum(way is True for way in ways), sum(way is None for way in ways)
        chance, steps, spent, checked = _chance(world, keeper, tasks, limit, seconds)
        null = sum(_solved_by_silence(world, task, limit) for task in tasks)
    finally:
        world.close()
        keeper.close()
    return Row(id, len(tasks), oracle, unknown, chance, null, steps, 1e6 * spent, 1e6 * checked)


def _solves(world: Environment, task: Task) -> bool | None:
    world.reset(task)
    way = list(world.oracle())
    if not way:
        return None
    for action in way:
        transition = world.step(action)
        if transition.terminated or transition.truncated:
            return transition.success
    return False


def _chance(
    world: Environment, keeper: GuardedEnvironment, tasks: list[Task], limit: int, seconds: float
) -> tuple[int | None, int, float, float]:
    """Return solved tasks, steps, and the median seconds of a step in the adapter and with checks.

    Medians, because the first steps of some packages take a thousand times as long as all others.
    """
    solved, spent, checked = 0, list[float](), list[float]()
    began = time.perf_counter()
    for task in tasks:
        dice = random.Random(task.seed)
        world.reset(task)
        keeper.reset(task)
        for _ in range(limit):
            try:
                action = sample_action(world, dice)
            except CapabilityMissing:
                return None, 0, 0.0, 0.0
            start = time.perf_counter()
            transition = world.step(action)
            middle = time.perf_counter()
            keeper.step(action)
            spent.append(middle - start)
            checked.append(time.perf_counter() - middle)
            if transition.terminated or transition.truncated:
                solved += transition.success
                break
        if time.perf_counter() - began > seconds:
            print(f"{task.environment}: chance stopped after {len(spent)} steps", file=sys.stderr)
            break
    return solved, len(spent), median(spent or [0.0]), median(checked or [0.0])


def _solved_by_silence(world: Environment, task: Task, limit: int) -> bool:
    """Return whether empty replies solve the task; ends at invalid ones."""
    world.reset(task)
    misunderstood = 0
    for _ in range(limit):
        transition = world.step(Action(""))
        if transition.terminated or transition.truncated:
            return transition.success
        misunderstood = 0 if transition.valid else misunderstood + 1
        if misunderstood == SILENT:
            break
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="+")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="of chance, per environment")
    parser.add_argument("--json", help="write the rows to this file, too")
    options = parser.parse_args()
    rows = []
    print("| environment | tasks | oracle | chance | null | step, µs | through palaestra, µs |")
    print("| --- " * 7 + "|")
    for id in options.ids:
        try:
            row = measure(id, options.tasks, options.seconds)
        except (InputError, EnvironmentFault) as error:
            print(f"{id}: {error}", file=sys.stderr)
            continue
        rows.append(row)
        oracle = "–" if row.oracle is None else f"{row.oracle}"
        oracle += f" (no way for {row.unknown})" if row.unknown else ""
        chance = "–" if row.chance is None else row.chance
        cost = f"{row.step_us:,.0f} | {row.checked_us:,.0f}"
        print(f"| {row.id} | {row.tasks} | {oracle} | {chance} | {row.null} | {cost} |", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
