"""Imitation: the next-token loss on what an expert said in its episodes.

Source: behaviour cloning (Pomerleau 1989); for language models supervised
fine-tuning with the loss on the policy's tokens only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from palaestra.core.episode import Episode
from palaestra.learning.batch import trained_rows
from palaestra.learning.learner import Learner, Update
from palaestra.learning.losses import Aggregation
from palaestra.learning.rows import rows_of


@dataclass(frozen=True, slots=True)
class ImitationPlan:
    """How demonstrations are studied."""

    epochs: int
    batch: int  # rows per optimiser step; an append-only episode is one row
    learning_rate: float
    warmup: int = 2  # optimiser steps over which the learning rate rises


def negative_log_likelihood(lp: Tensor, lp_old: Tensor, advantage: Tensor) -> Tensor:
    return -advantage * lp


def imitate(
    learner: Learner, demonstrations: Sequence[Episode], expert: str, plan: ImitationPlan, seed: int
) -> Iterator[tuple[int, int, Update]]:
    """Study solved demonstrations; yields (step, steps in all, update) after each step."""
    rows = [row for e in demonstrations if e.outcome.solved for row in rows_of(e, expert)]
    per_epoch = math.ceil(len(rows) / plan.batch)
    steps = plan.epochs * per_epoch
    for step in range(steps):
        epoch, position = divmod(step, per_epoch)
        order = list(rows)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        batch = order[position * plan.batch : (position + 1) * plan.batch]
        weighted = trained_rows(batch, {r.key: 1.0 for r in batch}, Aggregation.TOKEN_MEAN)
        rate = plan.learning_rate * min(1.0, (step + 1) / plan.warmup)
        yield step + 1, steps, learner.update(weighted, negative_log_likelihood, learning_rate=rate)
