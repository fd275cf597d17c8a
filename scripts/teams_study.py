"""Checks what teams of simulated members reach against formulas, and writes docs/results/teams.md.

    python scripts/teams_study.py [--tasks 4000] [--folder FOLDER] [--write]

Each task has two sides, of which one is right. Members are the model `reader`, which is right with
a stated probability and reads proposals and reviews in its prompt; the formula of a protocol then
says how often the team must be right. A line holds if the formula's value is in Wilson's 95 %
interval of the run. `--write` puts the table into the page between its markers.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results_page import run_cases

import palaestra as pa
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Task

SIDES = ("heads", "tails")


class Sides(Environment, capabilities={"answer", "admissible"}, typical_turns=1):
    """One question with two answers."""

    instructions = "Say a side: heads, tails."

    def reset(self, task: Task) -> Observation:
        self.right = random.Random(f"side {task.seed}").choice(SIDES)
        return Observation("Which side?")

    def step(self, action: Action) -> Transition:
        if action.text not in SIDES:
            return Transition(Observation("Say heads or tails."), valid=False)
        solved = action.text == self.right
        seen = Observation("Right." if solved else "Wrong.")
        return Transition(seen, float(solved), terminated=True, success=solved)

    def admissible(self) -> Sequence[str]:
        return SIDES

    def answer(self) -> Action:
        return Action(self.right)


@dataclass(frozen=True, slots=True)
class Case:
    """A protocol with readers, and how often it must be right."""

    name: str
    members: Sequence[str]
    stages: str  # TOML
    model: str  # of all members
    expected: float
    replies: float  # expected, per task
    see: str = "all"

    def file(self, folder: Path) -> Path:
        """Write the team's file; return its path."""
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', self.name)}.toml"
        members = "".join(f"[members.{member}]\n" for member in self.members)
        path.write_text(f'see = "{self.see}"\n{members}{self.stages}')
        return path


def majority(n: int, p: float) -> float:
    """Return how often most of n independent members are right; n is odd (Condorcet 1785)."""
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n // 2 + 1, n + 1))


def reviewed(p: float, recall: float, false: float, rounds: int) -> tuple[float, float]:
    """Return how often a proposal is right after rounds of review, and the expected replies.

    A round accepts a proposal or asks for a new one; after the last round the proposal is taken.
    """
    again = p * false + (1 - p) * recall
    reached = [again**k for k in range(rounds)]
    right = p * (1 - false) * sum(reached[:-1]) + p * reached[-1]
    return right, 2 * sum(reached)


def agreed(p: float, rounds: int) -> tuple[float, float]:
    """Return the same of two members that propose anew until they agree, or the first decides."""
    differ = 2 * p * (1 - p)
    rest = (1 - differ**rounds) / (1 - differ)
    return p * p * rest + differ**rounds / 2, 2 * rest


def cases() -> Iterable[Case]:
    """Yield all cases."""
    propose, count = '[[stage]]\ndo = "propose"\n', '[[stage]]\ndo = "count"\n'
    for n in (3, 5, 9):
        names = [f"m{k}" for k in range(n)]
        expected = majority(n, 0.7)
        model = "reader?right=0.7"
        yield Case(f"majority of {n} (0.7)", names, propose + count, model, expected, n, "own")
    for p, recall, false, rounds in ((0.6, 0.8, 0.1, 2), (0.6, 0.8, 0.1, 4), (0.7, 0.4, 0.3, 3)):
        stages = (
            f'{propose}who = ["author"]\n[[stage]]\ndo = "talk"\nwho = ["critic"]\n'
            f'times = {rounds}\nback = 1\nuntil = "accept"\n{count}'
        )
        right, replies = reviewed(p, recall, false, rounds)
        yield Case(
            f"review in {rounds} rounds ({p}, recall {recall}, false alarms {false})",
            ("author", "critic"), stages, f"reader?right={p}&recall={recall}&false={false}",
            right, replies,
        )  # fmt: skip
    for rounds in (2, 4):
        stages = f'{propose}times = {rounds}\nuntil = "agreement"\n{count}'
        right, replies = agreed(0.7, rounds)
        yield Case(
            f"two until they agree in {rounds} rounds (0.7)", ("left", "right"), stages,
            "reader?right=0.7", right, replies, "own",
        )  # fmt: skip
    for honesty in (0.9, 0.6):
        differ = 2 * 0.7 * 0.3
        stages = f'{propose}who = ["left", "right"]\n[[stage]]\ndo = "vote"\nwho = ["judge"]\n'
        yield Case(
            f"a judge picks one of two (0.7, honesty {honesty})", ("left", "right", "judge"),
            stages, f"reader?right=0.7&honesty={honesty}", 0.49 + differ * honesty, 2 + differ,
        )  # fmt: skip


def line(case: Case, tasks: int, folder: Path) -> str:
    """Run a case; return its row of the table."""
    results = pa.evaluate(
        Sides,
        team=str(case.file(folder)),
        model=case.model,
        n=tasks,
        run=folder / f"run-{case.file(folder).stem}",
        workers=0,
        progress=False,
    )
    assert results.success is not None and results.interval is not None
    low, high = results.interval
    verdict = "holds" if low <= case.expected <= high else "outside"
    return (
        f"| {case.name} | {case.expected:.3f} | {results.success:.3f} ({low:.3f} to {high:.3f}) | "
        f"{case.replies:.2f} | {results.data['turns']:.2f} | {verdict} |"
    )


HEAD = (
    "| protocol (probability that a member is right) | formula | run, 95 % "
    "| replies by formula | replies | |"
)


if __name__ == "__main__":
    sys.exit(run_cases(__doc__, "table", 4000, HEAD, cases(), line))
