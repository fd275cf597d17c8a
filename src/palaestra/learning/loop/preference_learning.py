"""Learning from preferences: pairs of responses, or labels of single ones.

The reference policy is the one that learning begins with. A step first computes the
log-probabilities of its batch, then takes the gradient of the loss exactly, whatever micro-batches
the memory allows (see `losses.preference`). Whole rollouts may be responses: of their rows only
the policy's own tokens count, observations are context (Xiong et al. 2024).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.compute.packing import Trained
from palaestra.learning.data.examples.labels import mismatched
from palaestra.learning.data.examples.preferred import Label, Pair, Response
from palaestra.learning.loop.batch import imitated_rows
from palaestra.learning.loop.learner import Learner, Update
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import pg
from palaestra.learning.losses.preference import as_advantages, coefficients, response_logprobs

Judged = Sequence[Pair] | Sequence[Label]
Loss = Callable[..., Tensor]  # see `losses.preference`


@dataclass(frozen=True, slots=True)
class PreferencePlan:
    """Settings of learning from preferences."""

    epochs: int
    batch: int  # pairs or labels per optimiser step
    learning_rate: float
    warmup: int = 2  # optimiser steps over which the learning rate rises


@dataclass(frozen=True, slots=True)
class PreferenceStep:
    """One optimiser step."""

    step: int  # 1-based
    steps: int  # in all
    update: Update
    loss: float  # mean over the batch, before the step
    accuracy: float
    """Share of pairs whose chosen response gained more than the rejected one since learning began,
    or of labels whose response moved in the right direction; 0.5 counts for no move."""

    def figures(self) -> dict[str, float]:
        """Return the metrics to log; the loss is that of the preferences."""
        return {**self.update.figures(), "loss": self.loss, "accuracy": self.accuracy}


@dataclass(frozen=True, slots=True)
class _Batch:
    items: Judged
    compared: list[Response]  # trained: of pairs all chosen ones, then all rejected ones
    beside: list[Response]  # KTO's mismatched ones, which are not trained
    reference: Tensor  # log-probabilities of both, in that order


def takes_pairs(loss: Loss) -> bool:
    """Return whether a loss compares two responses, or judges each alone."""
    while isinstance(loss, partial):
        loss = loss.func
    return "chosen" in inspect.signature(loss).parameters


def prefer(
    learner: Learner, judged: Judged, loss: Loss, plan: PreferencePlan, seed: int
) -> Iterator[PreferenceStep]:
    """Train on pairs or labels; yield after each optimiser step.

    Args:
        learner: its present policy is the reference.
        judged: at least one pair, or labels of at least two questions.
        loss: of pairs (DPO) or of labels (KTO).
        plan: the settings.
        seed: of the order.

    Raises:
        InputError: pairs for a loss of labels or the reverse, or labels of a single question.
    """
    pairs = isinstance(judged[0], Pair)
    if takes_pairs(loss) != pairs:
        made, wanted = ("pairs", "labels") if pairs else ("labels", "pairs")
        raise InputError(f"The loss learns from {wanted}, and these are {made}; choose another.")
    cut = _cut(judged, plan, seed)
    batches = [_batch(learner, *part) for part in cut]  # while the policy is the reference
    for number, batch in enumerate(batches, 1):
        rate = plan.learning_rate * min(1.0, number / plan.warmup)
        yield _step(learner, batch, loss, rate, number, len(batches))


def _cut(
    judged: Judged, plan: PreferencePlan, seed: int
) -> Iterator[tuple[Judged, list[Response]]]:
    """Yield batches, with a mismatched response for each label; those of an epoch differ."""
    for epoch in range(plan.epochs):
        items: list[Any] = list(judged)
        random.Random(f"{seed}/{epoch}").shuffle(items)
        beside = mismatched(items) if isinstance(items[0], Label) else []
        for start in range(0, len(items), plan.batch):
            part = slice(start, start + plan.batch)
            yield items[part], beside[part]


def _batch(learner: Learner, items: Judged, beside: list[Response]) -> _Batch:
    pairs = [item for item in items if isinstance(item, Pair)]
    labels = [item for item in items if isinstance(item, Label)]
    compared = [p.chosen for p in pairs] + [p.rejected for p in pairs]
    compared += [label.response for label in labels]
    return _Batch(items, compared, beside, _logprobs(learner, [*compared, *beside]))


def _logprobs(learner: Learner, responses: Sequence[Response]) -> Tensor:
    """Return the log-probability of each response under the present weights, fp64 [N]."""
    found = learner.logprobs(_rows(responses))
    return response_logprobs(responses, found)


def _rows(responses: Sequence[Response]) -> list[Trained]:
    rows = [row for response in responses for row in response]
    return imitated_rows(rows, Aggregation.TOKEN_MEAN)


def _step(
    learner: Learner, batch: _Batch, loss: Loss, rate: float, number: int, count: int
) -> PreferenceStep:
    now = _logprobs(learner, [*batch.compared, *batch.beside])
    n = len(batch.compared)
    gained = now - batch.reference
    if isinstance(batch.items[0], Pair):
        chosen, rejected = now[: n // 2], now[n // 2 :]
        ref = batch.reference
        of = partial(_of_pairs, loss, ref[: n // 2], ref[n // 2 :])
        slopes = torch.cat(coefficients(of, chosen, rejected))
        losses = of(chosen, rejected)
        better = gained[: n // 2] - gained[n // 2 :]
    else:
        labels = [item for item in batch.items if isinstance(item, Label)]
        desirable = torch.tensor([label.desirable for label in labels])
        of = partial(_of_labels, loss, batch.reference[:n], desirable, gained[n:])
        (slopes,) = coefficients(of, now[:n])
        losses = of(now[:n])
        better = torch.where(desirable, gained[:n], -gained[:n])
    advantages = as_advantages(batch.compared, slopes)
    weighted = [
        replace(row, advantage=advantage, weight=[1 / len(batch.items)] * len(row.tokens))
        for row, advantage in zip(_rows(batch.compared), advantages, strict=True)
    ]
    update = learner.update(weighted, pg, learning_rate=rate)
    right = (better > 0).double() + 0.5 * (better == 0)
    return PreferenceStep(number, count, update, float(losses.mean()), float(right.mean()))


def _of_pairs(
    loss: Loss, ref_chosen: Tensor, ref_rejected: Tensor, chosen: Tensor, rejected: Tensor
) -> Tensor:
    return loss(chosen, rejected, ref_chosen, ref_rejected)


def _of_labels(loss: Loss, ref: Tensor, desirable: Tensor, kl: Tensor, policy: Tensor) -> Tensor:
    return loss(policy, ref, desirable, kl)
