"""Collaboration scores in kitchens, as in MindAgent (Gong et al. 2023): a table of Markdown.

    python scripts/kitchen_study.py [--tasks 50]

For each layout of the family `overcooked`: the share of orders delivered in time at each load (an
order every 80, 40 and 20 steps) and the collaboration score, its mean over the loads, of the
planner in which one cook works at a time (the family's oracle, which goes on after an order that is
too late) and of random moves. Tasks are the first ones of the test split.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from statistics import mean

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.core.team_words import joint_plan
from palaestra.environments import registry
from palaestra.environments.families.overcooked.environment import Overcooked
from palaestra.environments.families.overcooked.kitchen import COOKS, LAYOUTS
from palaestra.environments.families.overcooked.orders import COUNT, LOADS


def delivered(world: Overcooked, actions: Iterable[Action]) -> float:
    """Return the share of orders that were delivered when the kitchen closes."""
    for action in actions:
        step = world.step(action)
        if step.terminated or step.truncated:
            break
    return world.progress()


def planned(world: Overcooked) -> Iterable[Action]:
    for moves in world.planned_moves()[0]:
        yield Action(joint_plan(dict(zip(COOKS, moves, strict=True))))


def chance(world: Overcooked, seed: int) -> Iterable[Action]:
    rng = random.Random(seed)
    while True:
        yield world.sample_action(rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=50)
    count = parser.parse_args().tasks
    loads = " | ".join(f"every {every}" for every in LOADS)
    print(f"| layout | cooks | {loads} | score |")
    print("| --- " * (len(LOADS) + 3) + "|")
    for layout in LAYOUTS:
        shares: dict[str, list[float]] = {"planner": [], "chance": []}
        for every in LOADS:
            id = f"overcooked/{layout}-{COUNT}-every-{every}"
            world = Overcooked(id.partition("/")[2])
            found: dict[str, list[float]] = {name: [] for name in shares}
            for task in registry.tasks(id).take(Split.TEST, count):
                world.reset(task)
                found["planner"].append(delivered(world, planned(world)))
                world.reset(task)
                found["chance"].append(delivered(world, chance(world, task.seed)))
            for name in shares:
                shares[name].append(mean(found[name]))
        for name, row in shares.items():
            print(f"| {layout} | {name} | {' | '.join(f'{x:.3f}' for x in [*row, mean(row)])} |")


if __name__ == "__main__":
    main()
