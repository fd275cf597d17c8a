"""Knowledge distillation: a student learns a teacher's distribution at each recorded token.

Source: Hinton et al. 2015; for policies Rusu et al. 2016 (policy distillation). The teacher is the
learner's reference policy; it may read other prompts before the same tokens (context distillation,
Snell et al. 2022; Memento No More, Alakuijala et al. 2025).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palaestra.learning.data.examples.distillation import Taught
from palaestra.learning.loop.batch import imitated_rows
from palaestra.learning.loop.learner import Learner, Update
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.kl import Divergence, distillation


@dataclass(frozen=True, slots=True)
class DistillationPlan:
    """Settings of distillation."""

    epochs: int
    batch: int  # rows per optimiser step
    learning_rate: float
    divergence: Divergence = Divergence.FORWARD
    warmup: int = 2  # optimiser steps over which the learning rate rises


def distil(
    learner: Learner, lessons: Sequence[Taught], plan: DistillationPlan, seed: int
) -> Iterator[tuple[int, int, Update]]:
    """Train on recorded replies; yield (step, steps in all, update) after each step.

    The loss is the mean divergence per token of the batch, in nats.

    Args:
        learner: its present policy is the student, its reference policy the teacher.
        lessons: rows as both read them.
        plan: the settings.
        seed: of the order.
    """
    per_epoch = math.ceil(len(lessons) / plan.batch)
    steps = plan.epochs * per_epoch
    for step in range(steps):
        epoch, position = divmod(step, per_epoch)
        order = list(lessons)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        batch = order[position * plan.batch : (position + 1) * plan.batch]
        own, theirs = (
            imitated_rows(rows, Aggregation.TOKEN_MEAN)
            for rows in ([one.row for one in batch], [one.teacher for one in batch])
        )
        rows = [replace(row, teacher=other) for row, other in zip(own, theirs, strict=True)]
        rate = plan.learning_rate * min(1.0, (step + 1) / plan.warmup)
        yield (
            step + 1,
            steps,
            learner.update(rows, distillation, learning_rate=rate, divergence=plan.divergence),
        )
