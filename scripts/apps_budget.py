"""Measure success against budget: an expert that errs, and the calls that it may make.

    python scripts/apps_budget.py --tasks 60

At each step the expert makes, with the stated probability, a random call with valid arguments
instead of the one that leads on; it sees what that did, and goes on from there. Where its error
cannot be undone, it has failed. An episode is stopped once its budget of actions is spent, `finish`
included, so success within a budget is read from the number of actions of an episode without one.
Prints a table: success in percent, with Wilson's 95 % interval, over tasks of the split test.
"""

from __future__ import annotations

import argparse
import random

from palaestra.core.environment import Action
from palaestra.core.task import Split, Task
from palaestra.core.tool import random_call
from palaestra.environments.families.apps.environment import Apps
from palaestra.evaluation.statistics.intervals import wilson

IDS = ("easy", "medium", "hard", "chain", "each", "hidden")
ERRORS = (0.0, 0.2, 0.4)
BUDGETS = (1, 2, 3, 4, 6, 8, 12, 20, 40)


def actions_to_success(env: Apps, task: Task, error: float) -> int | None:
    """Return how many actions an expert that errs needs; None if it fails."""
    env.reset(task)
    rng = random.Random(f"{task.id} {error}")
    for made in range(1, max(BUDGETS) + 1):
        plan = env.oracle()
        if not plan:
            return None
        call = random_call(env.tools, rng) if rng.random() < error else None
        step = env.step(plan[0] if call is None else Action(str(call), call))
        if step.terminated:
            return made if step.success else None
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=60)
    count = parser.parse_args().tasks
    print(f"| id | error | {' | '.join(f'{budget} actions' for budget in BUDGETS)} |")
    print("| --- " * (2 + len(BUDGETS)) + "|")
    for name in IDS:
        env, tasks = Apps(name), Apps.tasks(f"apps/{name}").take(Split.TEST, count)
        for error in ERRORS:
            needed = [actions_to_success(env, task, error) for task in tasks]
            cells = []
            for budget in BUDGETS:
                within = sum(one is not None and one <= budget for one in needed)
                share = wilson(within, count)
                low, high = 100 * share.low, 100 * share.high
                cells.append(f"{100 * share.mean:.0f} ({low:.0f} to {high:.0f})")
            print(f"| `{name}` | {error} | {' | '.join(cells)} |", flush=True)
        env.close()


if __name__ == "__main__":
    main()
