"""Reference solutions in environments with elements and pictures, each played twice; a table.

    python scripts/oracle_repeats.py ENVIRONMENT … [--tasks 385] [--workers 2]

Every task of the test split is solved twice by the reference, by real clicks and keys, the second
time in another world. The table counts episodes that were solved, and pairs of episodes in which
all element trees, or all pictures, were equal: at the beginning and after each action. Tasks that
were not solved, and those that differed, are named below. `miniwob` stands for every page of
MiniWoB++ with a reference.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from palaestra.core.environment import Environment
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import elements_of, picture_of
from palaestra.core.task import Split, Task
from palaestra.environments import registry

HEAD = "| environment | episodes | solved | steps | equal trees | equal pictures |"

MOST = 100  # gestures of an episode: a reference that goes on without an end has not solved it


@dataclass
class Played:
    """One episode: whether it was solved, and digests of trees and pictures on the way."""

    solved: bool = False
    trees: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)

    def look(self, world: Environment) -> None:
        """Note the elements and the picture that are there now."""
        self.trees.append(hashlib.sha256(repr(elements_of(world)).encode()).hexdigest())
        self.pictures.append(hashlib.sha256(picture_of(world)).hexdigest())


def play(world: Environment, task: Task) -> Played:
    """Solve a task by the plan that the reference makes at each turn."""
    world.reset(task)
    found = Played()
    found.look(world)
    while len(found.trees) <= MOST and (plan := world.oracle()):
        last = world.step(plan[0])
        found.look(world)
        if last.terminated or last.truncated:
            found.solved = last.success
            break
    return found


@dataclass
class Row:
    """What was found in an environment."""

    name: str
    pairs: list[tuple[Played, Played]]

    def line(self) -> str:
        """Return the row of the table."""
        both = [one for pair in self.pairs for one in pair]
        trees = sum(a.trees == b.trees for a, b in self.pairs)
        pictures = sum(a.pictures == b.pictures for a, b in self.pairs)
        return (
            f"| {self.name} | {len(both)} | {sum(one.solved for one in both)} | "
            f"{sum(len(one.trees) - 1 for one in both)} | {trees} of {len(self.pairs)} | "
            f"{pictures} of {len(self.pairs)} |"
        )

    def remarks(self) -> Iterator[str]:
        """Return a sentence for each task with something to tell."""
        for index, (a, b) in enumerate(self.pairs):
            for what, equal in (
                ("was not solved", a.solved and b.solved),
                ("had other trees", a.trees == b.trees),
                ("had other pictures", a.pictures == b.pictures),
            ):
                if not equal:
                    yield f"{self.name}, task {index}: {what}"


def measured(asked: tuple[str, int]) -> Row:
    """Play the tasks of one environment."""
    name, count = asked
    worlds = registry.make(name), registry.make(name)
    tasks = registry.tasks(name)
    pairs = []
    for index in range(count):
        first, second = (play(world, tasks.task(Split.TEST, index)) for world in worlds)
        pairs.append((first, second))
    for world in worlds:
        world.close()
    return Row(name, pairs)


def wanted(names: list[str]) -> list[str]:
    """Return the environments; `miniwob` is every page with a reference."""
    found = []
    for name in names:
        if name == "miniwob":
            from palaestra.environments.families.miniwob.solver import SOLVERS

            found += [f"miniwob/{page}" for page in SOLVERS]
        else:
            found.append(name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--tasks", type=int, default=385, help="of each environment")
    parser.add_argument("--workers", type=int, default=2, help="processes, each with a browser")
    options = parser.parse_args()
    try:
        asked = [(name, options.tasks) for name in wanted(options.environments)]
        for name, _ in asked:
            registry.environment_class(name)
    except InputError as error:
        parser.error(str(error))
    print(HEAD, "| --- | --- | --- | --- | --- | --- |", sep="\n", flush=True)
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for row in pool.imap(measured, asked):
            rows.append(row)
            print(row.line(), flush=True)
    print(Row("all", [pair for row in rows for pair in row.pairs]).line())
    for row in rows:
        print(*row.remarks(), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
