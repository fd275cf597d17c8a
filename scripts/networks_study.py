"""Checks layered networks of simulated members against formulas, and writes docs/results/teams.md.

    python scripts/networks_study.py [--tasks 4000] [--write]

Members are the model `reader`: right with a known probability in tasks with two sides, and honest
raters with another one. The first table compares success and replies with their formulas, with
pruning and without, with early stop and without. The second says how well the mean Agent Importance
Score ranks the members (Kendall's tau against their accuracies).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from math import prod
from pathlib import Path

from results_page import write_table

import palaestra as pa
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Task
from palaestra.environments.teams.protocol import facts_of
from palaestra.evaluation.statistics.intervals import mean_interval

ACCURACIES = (0.5, 0.9, 0.3, 0.7, 0.4, 0.8, 0.6)
"""In the order of the file, which must not matter."""

BATCH = 500  # tasks, by which members are ranked
SIDES = ("heads", "tails")


class Coin(Environment, capabilities={"answer", "admissible"}, typical_turns=1):
    """One question with two answers."""

    instructions = "Say the side that is up: heads, tails."

    def reset(self, task: Task) -> Observation:
        self.right = random.Random(f"coin {task.seed}").choice(SIDES)
        return Observation("Which side is up?")

    def step(self, action: Action) -> Transition:
        if action.text not in SIDES:
            return Transition(Observation("Say heads or tails."), valid=False)
        solved = action.text == self.right
        return Transition(Observation("Over."), float(solved), terminated=True, success=solved)

    def admissible(self) -> Sequence[str]:
        return SIDES

    def answer(self) -> Action:
        return Action(self.right)


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and how honest its raters are."""

    layers: int
    keep: int
    early: bool  # whether more than 2/3 of equal answers end a turn
    honesty: float = 1.0

    @property
    def name(self) -> str:
        kept = "all" if self.keep == len(ACCURACIES) else f"best {self.keep}"
        stop = "early stop" if self.early else "no early stop"
        return f"{self.layers} layers, {kept}, {stop}"

    def run(self, tasks: int, folder: Path) -> Path:
        """Run the network; return the run's folder."""
        file, run = folder / "team.toml", folder / f"{self.name} {self.honesty}"
        members = "".join(
            f'[members.m{10 * p:.0f}]\nmodel = "reader?right={p}&honesty={self.honesty}"\n'
            for p in ACCURACIES
        )
        stop = "" if self.early else "consensus = 1\n"
        file.write_text(f"{members}[network]\nlayers = {self.layers}\nkeep = {self.keep}\n{stop}")
        pa.evaluate(
            Coin, team=str(file), model="reader", n=tasks, run=run, workers=0, progress=False
        )
        return run

    def expected(self) -> tuple[float, float]:
        """Return success and replies with raters who are always right.

        By enumeration: right answers are kept before wrong ones, and any of equal ones alike.
        """

        @cache
        def layer(active: tuple[int, ...], number: int) -> tuple[float, float]:
            success = replies = 0.0
            for right in product((True, False), repeat=len(active)):
                chance = prod(
                    ACCURACIES[m] if ok else 1 - ACCURACIES[m]
                    for m, ok in zip(active, right, strict=True)
                )
                count = sum(right)
                most = max(count, len(active) - count)
                if number == self.layers or (self.early and 3 * most > 2 * len(active)):
                    tie = 2 * count == len(active)
                    won, more = float(right[0] if tie else 2 * count > len(active)), 0.0
                else:
                    good = [m for m, ok in zip(active, right, strict=True) if ok]
                    bad = [m for m in active if m not in good]
                    some, pool = ([], good) if count >= self.keep else (good, bad)
                    kept = [
                        layer(tuple(sorted((*some, *rest))), number + 1)
                        for rest in combinations(pool, min(self.keep, len(active)) - len(some))
                    ]
                    won = statistics.fmean(one for one, _ in kept)
                    more = len(active) + statistics.fmean(one for _, one in kept)  # with ratings
                success += chance * won
                replies += chance * (len(active) + more)
            return success, replies

        return layer(tuple(range(len(ACCURACIES))), 1)


def cases() -> Iterable[Case]:
    """Yield the cases of the first table."""
    everybody = len(ACCURACIES)
    yield Case(2, everybody, False)
    yield Case(2, everybody, True)
    yield Case(2, 2, False)
    yield Case(2, 2, True)
    yield Case(3, everybody, False)
    yield Case(3, 3, False)
    yield Case(3, 3, True)


def line(case: Case, run: Path) -> str:
    """Return a row of the first table."""
    results = pa.Run(run).results
    assert results.success is not None and results.interval is not None
    low, high = results.interval
    turns = [float(len(one.steps)) for one in _episodes(run)]
    replies = mean_interval(turns)
    success, formula = case.expected()
    holds = low <= success <= high and replies.low - 1e-9 <= formula <= replies.high + 1e-9
    return (
        f"| {case.name} | {success:.3f} | {results.success:.3f} ({low:.3f} to {high:.3f}) | "
        f"{formula:.2f} | {replies.mean:.2f} ({replies.low:.2f} to {replies.high:.2f}) | "
        f"{'holds' if holds else 'outside'} |"
    )


def ranking(case: Case, run: Path) -> str:
    """Return a row of the second table."""
    scores = [facts_of(one)[-1]["importance"] for one in _episodes(run)]
    members = [f"m{10 * p:.0f}" for p in ACCURACIES]

    def means(rows: Sequence[dict[str, float]]) -> list[float]:
        return [statistics.fmean(row[member] for row in rows) for member in members]

    batches = [scores[at : at + BATCH] for at in range(0, len(scores) - BATCH + 1, BATCH)]
    taus = [kendall(means(batch), ACCURACIES) for batch in batches]
    of = dict(zip(ACCURACIES, means(scores), strict=True))
    shown = ", ".join(f"{of[p]:.2f}" for p in sorted(of, reverse=True))
    return (
        f"| {case.name} | {case.honesty} | {kendall(means(scores), ACCURACIES):.2f} | "
        f"{min(taus):.2f} to {max(taus):.2f} | {shown} |"
    )


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau of two rankings without ties: agreeing minus other pairs, over all."""
    pairs = [*combinations(range(len(first)), 2)]
    signs = [(first[i] - first[j]) * (second[i] - second[j]) for i, j in pairs]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(pairs)


def _episodes(run: Path) -> list[pa.RecordedEpisode]:
    opened = pa.Run(run)
    found = [one for phase in opened.phases for one in opened.episodes(phase)]
    return sorted(found, key=lambda one: one.key.group)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args()
    first = [
        "| network | formula | success, 95 % | replies by formula | replies, 95 % | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    second = [
        f"| network | honesty | tau, {options.tasks:,} tasks | tau, batches of {BATCH} | "
        "mean importance of 0.9, 0.8, … 0.3 |",
        "| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for case in cases():
            first.append(line(case, case.run(options.tasks, Path(temporary))))
            print(first[-1], flush=True)
        for honesty in (1.0, 0.9, 0.7, 0.5):
            case = Case(3, 3, True, honesty)
            run = Path(temporary) / f"{case.name} {honesty}"
            run = run if run.exists() else case.run(options.tasks, Path(temporary))
            second.append(ranking(case, run))
            print(second[-1], flush=True)
    if options.write:
        write_table("teams.md", "network", [*first, "", *second])
    return 0


if __name__ == "__main__":
    sys.exit(main())
