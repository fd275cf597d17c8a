"""Data sets for practice: rows of a bundled one, told anew, with the last column hidden for some.

Each task draws rows, mixes and renames the columns, adds noise to the numbers and stretches them,
so that the answers cannot be looked up in the original.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SETS = {
    "iris": ("load_iris", "the species of a flower", True),
    "wine": ("load_wine", "the grower of a wine", True),
    "cancer": ("load_breast_cancer", "whether a tumour is benign", True),
    "digits": ("load_digits", "the digit in a picture of 8 by 8 points", True),
    "diabetes": ("load_diabetes", "how a disease goes on within a year", False),
}
ROWS, HIDDEN = 400, 0.3  # rows that a task has at most, and the share without an answer
NOISE = 0.02  # standard deviations of each column


@dataclass(frozen=True, slots=True)
class Data:
    """What an agent gets, and what it does not."""

    about: str
    classes: bool  # the target is a class, judged by accuracy; else a number, judged by R²
    train: str  # CSV: id, columns, target
    test: str  # CSV: id, columns
    ids: tuple[str, ...]  # of the hidden rows
    hidden: tuple[float, ...]  # their targets
    plain: float  # the score without any column: the most frequent class, or the mean


def made(name: str, dice: random.Random) -> Data:
    """A data set for one task; raises ImportError where scikit-learn is not installed."""
    import sklearn.datasets

    loader, about, classes = SETS[name]
    bunch: Any = getattr(sklearn.datasets, loader)()
    rows = [[float(value) for value in row] for row in bunch.data]
    target = [float(value) for value in bunch.target]
    width = len(rows[0])
    order = dice.sample(range(width), width)
    scale = [dice.choice((-1, 1)) * dice.uniform(0.5, 20) for _ in range(width)]
    shift = [dice.uniform(-50, 50) for _ in range(width)]
    spread = [_spread([row[i] for row in rows]) for i in range(width)]
    picked = dice.sample(range(len(rows)), min(ROWS, len(rows)))
    told = [
        [
            round((rows[n][i] + dice.gauss(0, NOISE * spread[i])) * scale[i] + shift[i], 4)
            for i in order
        ]
        for n in picked
    ]
    names = dict(zip(sorted(set(target)), "abcdefghij", strict=False)) if classes else {}
    wanted = [target[n] for n in picked]
    cut = int(len(picked) * (1 - HIDDEN))
    ids = [f"r{number:03d}" for number in dice.sample(range(1000), len(picked))]
    head = ",".join(["id", *(f"x{i}" for i in range(width))])
    cells = [",".join([id, *map(str, row)]) for id, row in zip(ids, told, strict=True)]
    answers = [names[value] if classes else f"{value:g}" for value in wanted]
    train = [f"{row},{answer}" for row, answer in zip(cells[:cut], answers, strict=False)]
    codes = [float("abcdefghij".index(names[value])) if classes else value for value in wanted]
    return Data(
        about,
        classes,
        "\n".join([f"{head},target", *train]) + "\n",
        "\n".join([head, *cells[cut:]]) + "\n",
        tuple(ids[cut:]),
        tuple(codes[cut:]),
        _plain(codes[:cut], codes[cut:], classes),
    )


def scored(submission: str, data: Data) -> float | None:
    """Accuracy, or R² (not below 0); None: it is no submission for these rows."""
    lines = [line.strip() for line in submission.strip().splitlines()]
    if not lines or lines[0].replace(" ", "") != "id,target":
        return None
    said: dict[str, float] = {}
    for line in lines[1:]:
        id, _, answer = line.partition(",")
        try:
            said[id] = float("abcdefghij".index(answer)) if data.classes else float(answer)
        except ValueError:
            return None
    if len(lines) - 1 != len(data.ids) or set(said) != set(data.ids):
        return None
    return _score([said[id] for id in data.ids], data.hidden, data.classes)


def _score(said: Sequence[float], right: Sequence[float], classes: bool) -> float:
    if classes:
        return sum(a == b for a, b in zip(said, right, strict=True)) / len(right)
    mean = sum(right) / len(right)
    error = sum((a - b) ** 2 for a, b in zip(said, right, strict=True))
    whole = sum((b - mean) ** 2 for b in right)
    score = 1 - error / whole
    return max(0.0, score) if score == score else 0.0  # not a number counts as nothing


def _plain(known: Sequence[float], right: Sequence[float], classes: bool) -> float:
    best = max(sorted(set(known)), key=known.count) if classes else sum(known) / len(known)
    return _score([best] * len(right), right, classes)


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
