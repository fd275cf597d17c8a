"""Imitation: the next-token loss on an expert's replies in its episodes.

Source: behaviour cloning (Pomerleau 1989); for language models supervised
fine-tuning with the loss on the policy's tokens only.
"""

from __future__ import annotations

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


def batches_of(examples: Sequence[Example], plan: ImitationPlan, seed: int) -> list[list[Example]]:
    """Return the examples of each optimiser step: all of them once in each epoch, shuffled."""
    found: list[list[Example]] = []
    for epoch in range(plan.epochs):
        order = list(examples)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        found += [order[at : at + plan.batch] for at in range(0, len(order), plan.batch)]
    return found


def imitate(
    learner: Learner, batches: Sequence[Sequence[Example]], plan: ImitationPlan
) -> Iterator[tuple[int, int, Update]]:
    """Train on one batch after the other; yield (step, steps in all, update) after each step."""
    for step, batch in enumerate(batches, 1):
        rows = imitated_rows([example.row for example in batch], Aggregation.TOKEN_MEAN)
        weighted = [
            replace(row, advantage=example.advantage)
            for row, example in zip(rows, batch, strict=True)
        ]
        rate = plan.learning_rate * min(1.0, step / plan.warmup)
        yield step, len(batches), learner.update(weighted, pg, learning_rate=rate)
