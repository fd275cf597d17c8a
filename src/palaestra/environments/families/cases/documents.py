"""Cases of documents: arithmetic over a table, and the limitations of a paper.

Sources: Fatemi and Hu 2024 for table questions whose steps critics look at one by one; Al Azher et
al. 2025 (LimAgents) for limitations that several roles find, scored point by point.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from palaestra.environments.families.cases.case import Case, among

TABLE = (
    "Answer a question about a table: which cells (such as sales Q1 and Q3), which operation "
    "(difference, sum, average, change, ratio), the number with two decimals, and its unit "
    "(million, percent, times)."
)
PAPER = (
    "Name the limitations of a paper, one of each kind, in the words of this list. "
    "Data: few subjects, one language, old data, no random sample. "
    "Method: no ablation, one seed, untuned baseline, no error bars. "
    "Evaluation: automatic scores only, one judge, no test of significance, small test set. "
    "Scope: one domain, short texts only, one model, laboratory only. "
    "Citation: misses the closest work, repeats a known result, contradicts its source, "
    "old survey only."
)

OPERATIONS: dict[str, tuple[Callable[[float, float], float], str, str]] = {
    "difference": (lambda a, b: b - a, "million", "By how much did {0} change from {1} to {2}?"),
    "sum": (lambda a, b: a + b, "million", "How much was {0} in {1} and {2} together?"),
    "average": (lambda a, b: (a + b) / 2, "million", "How much was {0} in {1} and {2} on average?"),
    "change": (
        lambda a, b: 100 * (b - a) / a,
        "percent",
        "By which percentage did {0} change from {1} to {2}?",
    ),
    "ratio": (lambda a, b: b / a, "times", "How many times {0} of {1} was that of {2}?"),
}
QUARTERS = ("Q1", "Q2", "Q3", "Q4")
ROWS = ("sales", "wages", "rent")

SIGNS = {
    "data": {
        "few subjects": "We asked 9 students.",
        "one language": "All texts are in Danish.",
        "old data": "The corpus was collected in 1998.",
        "no random sample": "We took the first shops that replied.",
    },
    "method": {
        "no ablation": "We propose four changes and measure them together.",
        "one seed": "We trained each network once.",
        "untuned baseline": "The rival runs with its default settings.",
        "no error bars": "We report the best of our runs.",
    },
    "evaluation": {
        "automatic scores only": "Quality is measured by BLEU.",
        "one judge": "The second author rated all replies.",
        "no test of significance": "Ours scores 71.2, theirs 70.9, so ours is better.",
        "small test set": "We test on 20 questions.",
    },
    "scope": {
        "one domain": "All documents are tax forms.",
        "short texts only": "Inputs are cut after 64 words.",
        "one model": "Everything is built on a single network.",
        "laboratory only": "Sessions took place in our rooms.",
    },
    "citation": {
        "misses the closest work": "Nobody has combined retrieval and voting before us.",
        "repeats a known result": "We show for the first time that larger samples help.",
        "contradicts its source": "As our source denies, votes always help.",
        "old survey only": "For related work see the survey of 2009.",
    },
}
"""By kind of limitation and limitation: the sentence of a paper that shows it."""


def table(rng: random.Random) -> Case:
    """Return a table of three rows and four quarters, in millions, and a question of two cells."""
    figures = {row: [rng.randrange(20, 400) for _ in QUARTERS] for row in ROWS}
    lines = [
        f"{row}: {', '.join(f'{q} {n}' for q, n in zip(QUARTERS, figures[row], strict=True))}"
        for row in ROWS
    ]
    row, operation = rng.choice(ROWS), rng.choice(list(OPERATIONS))
    first, second = sorted(rng.sample(range(len(QUARTERS)), 2))
    calculate, unit, question = OPERATIONS[operation]
    right = calculate(figures[row][first], figures[row][second])
    slips = [right + 1, right * 10, -right - 2, right / 2 + 5]  # carried, shifted, signs, halves
    slips += [other(*_pair(figures[row], first, second)) for other, *_ in OPERATIONS.values()]
    pairs = [f"{name} {a} and {b}" for name in ROWS for a in QUARTERS for b in QUARTERS if a < b]
    return Case(
        "\n".join(
            ["In millions:", *lines, question.format(row, QUARTERS[first], QUARTERS[second])]
        ),
        {
            "cells": among(f"{row} {QUARTERS[first]} and {QUARTERS[second]}", pairs),
            "operation": among(operation, list(OPERATIONS)),
            "number": among(f"{right:.2f}", [f"{slip:.2f}" for slip in slips], tolerance=0.01),
            "unit": among(unit, ["million", "percent", "times"]),
        },
    )


def paper(rng: random.Random) -> Case:
    """Return sentences of a paper in a random order, each of which shows a limitation."""
    chosen = {kind: rng.choice(list(found)) for kind, found in SIGNS.items()}
    sentences = [SIGNS[kind][name] for kind, name in chosen.items()]
    rng.shuffle(sentences)
    return Case(
        " ".join(sentences),
        {kind: among(name, list(SIGNS[kind])) for kind, name in chosen.items()},
    )


def _pair(figures: list[int], first: int, second: int) -> tuple[float, float]:
    return figures[first], figures[second]
