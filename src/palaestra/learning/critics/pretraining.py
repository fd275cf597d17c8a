"""Value pretraining: a critic learns what a frozen policy earns before the policy moves.

A critic that knows nothing, or was made from a reward model, is systematically wrong at
the first tokens, and its errors would be the policy's first lessons.

Source: VC-PPO and VAPO, named among its pieces by UI-TARS-2 (Wang et al. 2025); their
constants were not read, those here are ours.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.credit.rule import discounted, explained_variance, per_token
from palaestra.learning.critics.value import ValueUpdate, has_targets, targets_of
from palaestra.learning.packing import Trained
from palaestra.learning.trajectory import Trajectory


class ValueLearner(Protocol):
    """A `SeparateCritic`, or a `Learner` that has a critic."""

    def values(self, rows: Sequence[Trained]) -> list[list[float]]:
        """The value before each trained token of each row."""

    def update_values(self, rows: Sequence[Trained]) -> ValueUpdate:
        """One optimiser step on the rows' value targets; the policy stays as it is."""


def monte_carlo_targets(trajectory: Trajectory, gamma: float = 1.0) -> Tensor:
    """What was really earned from each token on: returns-to-go, the critic's targets for lambda 1.

    Args:
        trajectory: a rollout of the frozen policy. Where a limit cut it off, `bootstrap`
            stands for what it would have earned afterwards.
        gamma: discount per turn.

    Returns:
        shape [T], one per sampled token, fp64.
    """
    later = discounted([*trajectory.rewards, trajectory.bootstrap], gamma)
    return per_token(trajectory, later[:-1])


def pretrain(
    critic: ValueLearner,
    rows: Sequence[Trained],
    *,
    batch: int,
    most_passes: int = 50,
    patience: int = 2,
    tolerance: float = 0.01,
    seed: int = 0,
) -> list[float]:
    """Fit a critic to the rows' targets until its explained variance no longer rises.

    A pass also counts as progress while the squared error still falls by `tolerance` of what
    it was at first: returns that hardly vary have little variance to explain.

    Args:
        critic: moved in place.
        rows: with `value_target`, see `monte_carlo_targets`.
        batch: rows per optimiser step.
        most_passes: over all rows.
        patience: passes without progress after which it ends.
        tolerance: the least rise of the explained variance that is progress.
        seed: of the order of rows.

    Returns:
        the explained variance before the first pass and after each.

    Raises:
        InputError: no row has a target.
    """
    taught = [row for row in rows if has_targets(row)]
    if not taught:
        raise InputError("A critic was given nothing to learn: no row has a value_target.")
    targets = torch.tensor([t for row in taught for t in targets_of(row)], dtype=torch.float64)

    def judge() -> tuple[float, float]:
        found = [v for values in critic.values(taught) for v in values]
        values = torch.tensor(found, dtype=torch.float64)
        error = (values - targets).square().nanmean()
        return explained_variance(values, targets), float(error)

    explained, error = judge()
    history, first = [explained], error
    best, least, tired = explained, error, 0
    for number in range(most_passes):
        order = list(taught)
        random.Random(f"{seed}/{number}").shuffle(order)
        for at in range(0, len(order), batch):
            critic.update_values(order[at : at + batch])
        explained, error = judge()
        history.append(explained)
        if explained > best + tolerance or error < least - tolerance * first:
            best, least, tired = max(best, explained), min(least, error), 0
        else:
            tired += 1
        if tired == patience:
            break
    return history
