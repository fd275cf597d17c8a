"""Search at test time: success against compute (docs/results/search.md).

    python scripts/search_study.py run FOLDER [--tasks 64] [--error 0.3] [--worlds probe/sea-8 …]
    python scripts/search_study.py table FOLDER

The model is the environment's expert; each action is replaced by a random one with a probability.
It costs nothing, and shows which errors a search corrects. A task may take as many turns as its
reference solution and two more, so errors cannot be corrected without end. `run` evaluates each
agent at each size on the same tasks, and adds a line per cell to FOLDER/cells.jsonl; finished cells
are not repeated. `table` prints success with 95 % Wilson intervals over tasks, model calls and
trial steps per episode, and the success of repeated tries of the direct agent with as many calls
(pass@k, which needs to know the right try).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Key
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.evaluation.statistics.repeats import Trials, pass_at_k
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment

SLACK = 2  # turns beyond the reference solution
REPEATS = 16  # tries of the direct agent
WORLDS: Mapping[str, Sequence[int]] = {  # with the sizes of their searches
    "probe/sea-8": (1, 2, 4, 8, 16),
    "gymnasium/Taxi-v4": (1, 2, 4, 8, 16),
    "babyai/GoToLocal": (1, 4),
}
ARMS = {  # N stands for the size
    "best_of_n, progress": "best_of_n?n=N&scorer=progress",
    "beam, progress": "beam?width=N&samples=2&scorer=progress",
    "best_first, progress": "best_first?budget=N&samples=2&scorer=progress",
    "lats, progress": "lats?iterations=N&samples=2&scorer=progress",
    "best_first, oracle": "best_first?budget=N&samples=2&scorer=oracle",
    "best_first, reward": "best_first?budget=N&samples=2&scorer=reward",
    "lookahead": "lookahead?samples=N",
}
LARGEST = {"lats, progress": 8, "lookahead": 8, "best_first, reward": 4}  # larger ones are slow


@dataclass(frozen=True)
class Cell:
    """One agent on all tasks of an environment."""

    world: str
    arm: str
    size: int
    error: float
    solved: list[list[bool]]  # per task, per repeat; where the result is valid
    calls: float  # per episode
    tried: float
    turns: float
    invalid: int  # episodes without a valid result
    seconds: float

    @property
    def name(self) -> tuple[str, str, int, float]:
        return self.world, self.arm, self.size, self.error


async def run_cell(
    id: str, arm: str, agent_name: str, size: int, tasks: int, error: float, repeats: int = 1
) -> Cell:
    """Run one cell, in this process."""
    environment, agent, began = registry.make(id), make_agent(agent_name), time.monotonic()
    world = LocalEnvironment(environment)
    chosen: list[Task] = environment.tasks(id).take(Split.TEST, tasks)
    solved: list[list[bool]] = []
    calls, tried, turns, invalid = [], [], [], 0
    for number, task in enumerate(chosen):
        await world.reset(task)
        budget = Budget(turns=len(await world.oracle()) + SLACK)
        results = []
        for repeat in range(repeats):
            model = ExpertModel(agent, error=error, environment=world)
            key = Key(f"{arm}/{size}", number, repeat)
            episode = await Session(key, task, world, agent, {"agent": model}, budget=budget).run()
            if not episode.outcome.scored:
                invalid += 1
                continue
            results.append(episode.outcome.solved)
            calls.append(len(episode.calls))
            tried.append(episode.usage.tried)
            turns.append(episode.usage.turns)
        solved.append(results)
    await world.close()
    seconds = time.monotonic() - began
    spent = (fmean(calls), fmean(tried), fmean(turns))
    return Cell(id, arm, size, error, solved, *spent, invalid, round(seconds, 1))


def run(folder: Path, worlds: Sequence[str], tasks: int, error: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    done = {cell.name for cell in cells(folder)}
    for world in worlds:
        asked = [("direct", "direct", 1, REPEATS)]
        for size in WORLDS[world]:
            for arm, name in ARMS.items():
                if size <= LARGEST.get(arm, size) and (size > 1 or arm != "lookahead"):
                    asked.append((arm, name.replace("=N", f"={size}"), size, 1))
        for arm, name, size, repeats in asked:
            if (world, arm, size, error) in done:
                continue
            cell = asyncio.run(run_cell(world, arm, name, size, tasks, error, repeats))
            with (folder / "cells.jsonl").open("a") as file:
                file.write(json.dumps(asdict(cell)) + "\n")
            print(line(cell, None), flush=True)


def cells(folder: Path) -> list[Cell]:
    path = folder / "cells.jsonl"
    if not path.exists():
        return []
    return [Cell(**json.loads(text)) for text in path.read_text().splitlines()]


def line(cell: Cell, direct: Cell | None) -> str:
    """Return a row of the table."""
    firsts = [results[0] for results in cell.solved if results]
    rate = wilson(sum(firsts), len(firsts))
    beside = ""
    if direct is not None:
        k = max(1, min(REPEATS, round(cell.calls / direct.calls)))
        trials = [Trials(len(results), sum(results)) for results in direct.solved]
        beside = f"{100 * fmean(pass_at_k(of, k) for of in trials if of.n >= k):.0f} (k = {k})"
    success = f"{100 * rate.mean:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
    numbers = f"{cell.calls:.1f} | {cell.tried:.1f} | {cell.turns:.1f}"
    note = f" ({cell.invalid} invalid)" if cell.invalid else ""
    return f"| {cell.world} | {cell.arm} | {cell.size} | {success}{note} | {numbers} | {beside} |"


def table(folder: Path) -> None:
    found = cells(folder)
    print("| world | agent | N | success % [95 %] | calls | tried | turns | direct pass@k % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for world in WORLDS:
        of = [cell for cell in found if cell.world == world]
        direct = next((cell for cell in of if cell.arm == "direct"), None)
        for cell in sorted(of, key=lambda cell: (["direct", *ARMS].index(cell.arm), cell.size)):
            print(line(cell, direct))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--error", type=float, default=0.3)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    asked = parser.parse_args()
    if asked.verb == "run":
        run(asked.folder, asked.worlds, asked.tasks, asked.error)
    else:
        table(asked.folder)


if __name__ == "__main__":
    main()
