"""How often the monitors alarm in healthy runs, and how often they miss collapses.

    python scripts/alarm_study.py [--runs 1000] [--seed 0]

Prints one line per kind of run: recorded ones of docs/results/monitor_curves.csv, and simulated
ones. A simulated run has 16 tasks x 4 rollouts a step with sampled successes, so that success,
reward and spread of returns vary as in a real run. Entropies and gradient norms are the smoothed
curves of a recorded run of more than five steps, stretched over the simulated one, times the
recorded noise in blocks of five steps, which keeps its heavy tails.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from palaestra.learning.loop.alarms import found_again

CURVES = Path(__file__).parents[1] / "docs/results/monitor_curves.csv"
TASKS, GROUP, BLOCK = 16, 4, 5
COLLAPSE = ("variance_cliff", "gradient_spike", "entropy_collapse", "echo_trap")

Metrics = dict[str, float]


def recorded() -> dict[str, list[Metrics]]:
    """Return the figures of each recorded run, step by step, without missing figures."""
    found: dict[str, list[Metrics]] = {}
    with CURVES.open(newline="") as file:
        for row in csv.DictReader(file):
            values = {k: float(v) for k, v in row.items() if k not in ("run", "step") and v}
            found.setdefault(row["run"], []).append(values)
    return found


@dataclass(frozen=True)
class Shape:
    """A figure of a recorded run: its smoothed curve, and the logarithms of the noise around it."""

    course: list[float]
    scatter: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Shape:
        course = [median(values[max(0, i - 5) : i + 6]) for i in range(len(values))]
        return cls(course, [math.log(v / c) for v, c in zip(values, course, strict=True)])

    def sampled(self, places: Sequence[float], dice: random.Random) -> list[float]:
        """Sample the figure at `places`, shares of the recorded run, with noise in blocks."""
        found: list[float] = []
        while len(found) < len(places):
            start = dice.randrange(len(self.scatter) - BLOCK)
            for noise in self.scatter[start : start + BLOCK]:
                if len(found) < len(places):
                    place = round(places[len(found)] * (len(self.course) - 1))
                    found.append(self.course[place] * math.exp(noise))
        return found


@dataclass(frozen=True)
class Step:
    """The parameters from which a simulated step is sampled."""

    success: float  # mean over tasks, before sampling
    spread: float  # of the tasks' difficulties, in logits: large ones are always or never solved
    entropy: float = 1.0  # factors on the recorded figures
    gradient: float = 1.0


def healthy(dice: random.Random) -> list[Step]:
    """Return a run that rises from any start to nearly all tasks solved."""
    start, end = dice.uniform(0.1, 0.6), dice.uniform(0.9, 0.998)
    return [Step(p, 1.0) for p in _rise(start, end, dice)]


def halfway(dice: random.Random) -> list[Step]:
    """Return a run that rises to a plateau, where some tasks stay unsolved."""
    start = dice.uniform(0.1, 0.4)
    return [Step(p, 1.0) for p in _rise(start, start + dice.uniform(0.2, 0.4), dice)]


def collapsing(dice: random.Random) -> list[Step]:
    """Return RAGEN's collapse: it rises, then rollouts of a task become alike, then it fails."""
    course = _rise(dice.uniform(0.2, 0.4), dice.uniform(0.5, 0.7), dice)
    turn = dice.randint(25, len(course) - 25)
    found = [Step(p, 1.0) for p in course[:turn]]
    for n in range(len(course) - turn):
        lost = min(1.0, n / 15)
        leap = dice.uniform(10, 30) if n >= 8 else 1.0
        found.append(Step(course[turn] * (1 - 0.7 * lost), 8.0, max(0.05, 0.8**n), leap))
    return found


def stagnating(dice: random.Random) -> list[Step]:
    """Return a run that never rises; rollouts of a task become alike and the entropy vanishes."""
    level, length = dice.uniform(0.2, 0.6), dice.randint(60, 120)
    turn = dice.randint(15, 30)
    return [
        Step(level, 1.0) if n < turn else Step(level, 8.0, max(0.05, 0.8 ** (n - turn)))
        for n in range(length)
    ]


KINDS: Mapping[str, Callable[[random.Random], list[Step]]] = {
    "healthy, to the top": healthy,
    "healthy, halfway": halfway,
    "collapse after a rise": collapsing,
    "collapse without a rise": stagnating,
}


def simulated(
    steps: Sequence[Step], shapes: Mapping[str, Shape], dice: random.Random
) -> list[Metrics]:
    """Return the figures of a run with these steps."""
    gone = [(s.success - steps[0].success) / (1 - steps[0].success) for s in steps]
    places = [min(1.0, max(0.0, share)) for share in gone]  # as far as the recorded run had gone
    entropies = shapes["entropy"].sampled(places, dice)
    norms = shapes["gradient_norm"].sampled(places, dice)
    found = []
    for step, entropy, norm in zip(steps, entropies, norms, strict=True):
        returns: list[list[float]] = []
        for _ in range(TASKS):
            logit = _logit(step.success) * (1 + step.spread / 3) + dice.gauss(0, step.spread)
            chance = 1 / (1 + math.exp(-logit))
            solved = [dice.random() < chance for _ in range(GROUP)]
            returns.append([won * (1 - 0.2 * dice.uniform(0.2, 0.8)) for won in solved])
        every = [r for group in returns for r in group]
        found.append(
            {
                "success": fmean(r > 0 for r in every),
                "reward": fmean(every),
                "group_std": fmean(stdev(group) for group in returns),
                "entropy": entropy * step.entropy,
                "gradient_norm": norm * step.gradient,
            }
        )
    return found


def alarmed(history: Sequence[Metrics]) -> Counter[str]:
    """Return which monitors alarmed at any step, with `any` if one did."""
    names = set(found_again(list(enumerate(history, 1))))
    return Counter([*names, *(["any"] if names else [])])


def study(kind: str, runs: int, seed: int) -> Counter[str]:
    """Count the simulated runs of a kind in which each monitor alarmed."""
    shapes = [
        {m: Shape.of([v[m] for v in run if v.get(m, 0) > 0]) for m in ("entropy", "gradient_norm")}
        for run in recorded().values()
        if len(run) > BLOCK
    ]
    counts: Counter[str] = Counter()
    for number in range(runs):
        dice = random.Random(f"{seed}/{kind}/{number}")
        steps = KINDS[kind](dice)
        counts += alarmed(simulated(steps, dice.choice(shapes), dice))
    return counts


def _rise(start: float, end: float, dice: random.Random) -> list[float]:
    """Return a logistic curve, linear in logits, then a plateau."""
    length = dice.randint(50, 120)
    middle, width = dice.uniform(0.1, 0.7) * length, dice.uniform(0.05, 0.3) * length
    low, high = _logit(start), _logit(end)
    courses = [low + (high - low) / (1 + math.exp((middle - n) / width)) for n in range(length)]
    return [1 / (1 + math.exp(-logit)) for logit in courses]


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"| run | {' | '.join([*COLLAPSE, 'any'])} |")
    print("| --- | " + "--- | " * (len(COLLAPSE) + 1))
    for name, history in recorded().items():
        counts = alarmed(history)
        print(f"| {name} | {' | '.join(str(counts[m]) for m in [*COLLAPSE, 'any'])} |")
    for kind in KINDS:
        counts = study(kind, options.runs, options.seed)
        shown = [f"{counts[m] / options.runs:.1%}" for m in [*COLLAPSE, "any"]]
        print(f"| {kind}, {options.runs} simulated | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
