"""A judge that learned what right trajectories of tool calls look like: `trajectory:FILE`.

A logistic regression over features of the trajectory (`trajectory_features.py`). It learns from
right trajectories alone; wrong ones are made of them (`corrupted_trajectories.py`). It asks no
model, so it costs about a millisecond, and can be a reward where outcomes are not known.

After MAG-V (Sengupta et al. 2024).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.message import ToolCall
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.corrupted_trajectories import corrupted
from palaestra.evaluation.judges.trajectory_features import (
    FEATURES,
    Library,
    Trajectory,
    features,
    trajectory_of,
)
from palaestra.evaluation.judges.verdict import PASS, Judge, Verdict

FEWEST = 20  # right trajectories to learn from
PENALTY = 1.0  # on the squares of the weights
STEPS = 50  # of Newton's method, at most
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Verifier:
    """A logistic regression over the features of trajectories."""

    library: Library
    mean: Array  # of each feature in the examples, shape [F]
    scale: Array  # their standard deviations, shape [F]
    weights: Array  # shape [F]
    bias: float

    def contributions(self, trajectory: Trajectory) -> Array:
        """Return what each feature adds to the log odds of being right, shape [F]."""
        x = features(trajectory, self.library)
        return np.asarray((x - self.mean) / self.scale * self.weights)

    def probability(self, trajectory: Trajectory) -> float:
        """Return the probability that a trajectory is right."""
        return float(_sigmoid(np.array(self.bias + self.contributions(trajectory).sum())))

    def save(self, path: Path) -> None:
        """Write the verifier as a JSON file."""
        known = [
            {
                "request": one.request,
                "calls": [[call.name, dict(call.arguments)] for call in one.calls],
            }
            for one in self.library.trajectories
        ]
        numbers = {name: getattr(self, name).tolist() for name in ("mean", "scale", "weights")}
        found = {"features": list(FEATURES), **numbers, "bias": self.bias, "right": known}
        path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Verifier:
        """Read a verifier; raises InputError if the file is none, or has other features."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["features"] != list(FEATURES):
                raise InputError(
                    f"The verifier {path} knows other features than this version; make it again "
                    f"with `palaestra judge fit RUN --to {path}`."
                )
            right = [
                Trajectory(
                    one["request"],
                    tuple(ToolCall(name, given) for name, given in one["calls"]),
                    ("",) * len(one["calls"]),
                )
                for one in found["right"]
            ]
            mean, scale, weights = (np.array(found[k]) for k in ("mean", "scale", "weights"))
            return cls(Library(right), mean, scale, weights, float(found["bias"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"The verifier {path} cannot be read: {error}; make one with `palaestra judge fit "
                "RUN --to FILE`."
            ) from None


def fit(trajectories: Sequence[Trajectory], seed: int = 0) -> Verifier:
    """Learn from right trajectories, and from wrong ones that are made of them.

    Both kinds have the same weight in all. Each is compared with the other right trajectories only.

    Args:
        trajectories: those that are known to be right.
        seed: decides how trajectories are corrupted.

    Raises:
        GroupTooSmall: there are fewer than 20 with two calls or more.
    """
    right = [one for one in trajectories if len(one.calls) > 1]
    if len(right) < FEWEST:
        raise GroupTooSmall(
            f"There are {len(right)} right trajectories of two calls or more; a verifier needs at "
            f"least {FEWEST}. Record more episodes."
        )
    library, rng = Library(right), random.Random(seed)
    rows, labels = list[Array](), list[bool]()
    for number, one in enumerate(right):
        for other in (one, *corrupted(one, right, rng)):
            rows.append(features(other, library, number))
            labels.append(other is one)
    x, y = np.stack(rows), np.array(labels, dtype=np.float64)
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    balance = np.where(y > 0, len(y) / (2 * y.sum()), len(y) / (2 * (1 - y).sum()))
    weights, bias = logistic_regression((x - mean) / scale, y, balance)
    return Verifier(library, mean, scale, weights, bias)


def logistic_regression(x: Array, y: Array, weight: Array) -> tuple[Array, float]:
    """Fit weights by Newton's method, with a penalty on their squares.

    Args:
        x: examples, shape [N, F].
        y: 1 or 0 for each, shape [N].
        weight: of each example, shape [N].

    Returns:
        weights, shape [F], and the bias, which has no penalty.
    """
    design = np.hstack([x, np.ones((len(x), 1))])
    penalty = np.diag([PENALTY] * x.shape[1] + [1e-9])
    found = np.zeros(design.shape[1])
    for _ in range(STEPS):
        p = _sigmoid(design @ found)
        gradient = design.T @ (weight * (p - y)) + penalty @ found
        curvature = (design * (weight * np.maximum(p * (1 - p), 1e-9))[:, None]).T @ design
        step = np.linalg.solve(curvature + penalty, gradient)
        found = found - step
        if np.abs(step).max() < 1e-9:
            break
    return found[:-1], float(found[-1])


class TrajectoryJudge(Judge):
    """A judge by a verifier in a file."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises InputError like `Verifier.load`."""
        self.name, self.verifier = f"trajectory:{path}", Verifier.load(path)
        self._text = path.read_text(encoding="utf-8")

    @property
    def rule(self) -> str:
        return f"trajectory\n{self._text}"

    async def judge(self, case: Case) -> Verdict:
        """Return the probability that the trajectory is right, and what speaks most against it."""
        trajectory = trajectory_of(case)
        value = self.verifier.probability(trajectory)
        against = self.verifier.contributions(trajectory)
        worst = int(np.argmin(against))
        doubts = value < PASS and against[worst] < 0
        return self.verdict(value, FEATURES[worst] if doubts else "nothing speaks against it")


def _sigmoid(x: Any) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -500, 500))))
