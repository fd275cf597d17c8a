"""Data sets for tasks: transformed rows of a bundled one, with the target hidden for some rows.

Each task samples rows, shuffles and renames the columns, and adds noise to the numbers and rescales
them, so that the answers cannot be looked up in the original.
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
ROWS, HIDDEN = 400, 0.3  # the most rows of a task, and the share with a hidden target
NOISE = 0.02  # standard deviations of each column


@dataclass(frozen=True, slots=True)
class Data:
    """The tables for the agent, and the hidden targets."""

    about: str
    classes: bool  # the target is a class, scored by accuracy; else a number, scored by R²
    train: str  # CSV: id, columns, target
    test: str  # CSV: id, columns
    ids: tuple[str, ...]  # of the hidden rows
    hidden: tuple[float, ...]  # their targets
    plain: float  # the baseline score: predicting the most frequent class, or the mean


def make_data(name: str, rng: random.Random) -> Data:
    """Make a data set for one task; raises ImportError if scikit-learn is not installed."""
    import sklearn.datasets

    loader, about, classes = SETS[name]
    bunch: Any = getattr(sklearn.datasets, loader)()
    rows = [[float(value) for value in row] for row in bunch.data]
    target = [float(value) for value in bunch.target]
    width = len(rows[0])
    order = rng.sample(range(width), width)
    scale = [rng.choice((-1, 1)) * rng.uniform(0.5, 20) for _ in range(width)]
    shift = [rng.uniform(-50, 50) for _ in range(width)]
    spread = [_spread([row[i] for row in rows]) for i in range(width)]
    picked = rng.sample(range(len(rows)), min(ROWS, len(rows)))
    scaled = [
        [
            round((rows[n][i] + rng.gauss(0, NOISE * spread[i])) * scale[i] + shift[i], 4)
            for i in order
        ]
        for n in picked
    ]
    names = dict(zip(sorted(set(target)), "abcdefghij", strict=False)) if classes else {}
    wanted = [target[n] for n in picked]
    cut = int(len(picked) * (1 - HIDDEN))
    ids = [f"r{number:03d}" for number in rng.sample(range(1000), len(picked))]
    head = ",".join(["id", *(f"x{i}" for i in range(width))])
    cells = [",".join([id, *map(str, row)]) for id, row in zip(ids, scaled, strict=True)]
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


def score_submission(submission: str, data: Data) -> float | None:
    """Return the accuracy, or R² (at least 0); None for an invalid submission."""
    lines = [line.strip() for line in submission.strip().splitlines()]
    if not lines or lines[0].replace(" ", "") != "id,target":
        return None
    predicted: dict[str, float] = {}
    for line in lines[1:]:
        id, _, answer = line.partition(",")
        try:
            predicted[id] = float("abcdefghij".index(answer)) if data.classes else float(answer)
        except ValueError:
            return None
    if len(lines) - 1 != len(data.ids) or set(predicted) != set(data.ids):
        return None
    return _score([predicted[id] for id in data.ids], data.hidden, data.classes)


def _score(predicted: Sequence[float], true: Sequence[float], classes: bool) -> float:
    if classes:
        return sum(a == b for a, b in zip(predicted, true, strict=True)) / len(true)
    mean = sum(true) / len(true)
    error = sum((a - b) ** 2 for a, b in zip(predicted, true, strict=True))
    whole = sum((b - mean) ** 2 for b in true)
    score = 1 - error / whole
    return max(0.0, score) if score == score else 0.0  # NaN counts as 0


def _plain(known: Sequence[float], true: Sequence[float], classes: bool) -> float:
    best = max(sorted(set(known)), key=known.count) if classes else sum(known) / len(known)
    return _score([best] * len(true), true, classes)


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
