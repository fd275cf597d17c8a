"""Imitation: the next-token loss on an expert's replies in its episodes.

Source: behaviour cloning (Pomerleau 1989); for language models supervised
fine-tuning with the loss on the policy's tokens only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palaestra.learning.data.examples.example import Example
from palaestra.learning.loop.batch import imitated_rows
from palaestra.learning.loop.learner import Learner, Update
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import pg


@dataclass(frozen=True, slots=True)
class ImitationPlan:
    """Settings of imitation."""

    epochs: int
    batch: int  # examples per optimiser step; an append-only episode is one
    learning_rate: float
    warmup: int = 2  # optimiser steps over which the learning rate rises


def imitate(
    learner: Learner, examples: Sequence[Example], plan: ImitationPlan, seed: int
) -> Iterator[tuple[int, int, Update]]:
    """Train on examples (see `examples`); yield (step, steps in all, update) after each step."""
    per_epoch = math.ceil(len(examples) / plan.batch)
    steps = plan.epochs * per_epoch
    for step in range(steps):
        epoch, position = divmod(step, per_epoch)
        order = list(examples)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        batch = order[position * plan.batch : (position + 1) * plan.batch]
        rows = imitated_rows([example.row for example in batch], Aggregation.TOKEN_MEAN)
        weighted = [
            replace(row, advantage=example.advantage)
            for row, example in zip(rows, batch, strict=True)
        ]
        rate = plan.learning_rate * min(1.0, (step + 1) / plan.warmup)
        yield step + 1, steps, learner.update(weighted, pg, learning_rate=rate)
