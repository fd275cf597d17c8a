"""Entropy terms, added to a loss so that the policy keeps exploring.

A term is a function `(entropy [M], step [M], weight [M]) -> scalar` of the trained
tokens of a micro-batch: their entropies in nats with gradient, the environment step
that each belongs to, and their loss weights. Weights add up over the whole batch, so
the terms of its micro-batches add up to the term of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from palaestra.core.errors import RecipeError

EntropyTerm = Callable[[Tensor, Tensor, Tensor], Tensor]


class Smoother(StrEnum):
    """The penalty of an entropy outside the band of its history."""

    SQUARED = "squared"  # squared distance to the band: pushes back towards it
    INDICATOR = "indicator"  # the released form, a constant: has a value, but no gradient


@dataclass(frozen=True, slots=True)
class EntropyHistory:
    """Mean entropy of the policy at each environment step, over past iterations."""

    sums: Mapping[int, float] = field(default_factory=dict)  # by step: sum over iterations
    counts: Mapping[int, int] = field(default_factory=dict)  # by step: iterations that reached it

    def mean(self, step: int) -> float:
        """Return the average over the iterations that reached `step`; NaN if none did."""
        return self.sums[step] / self.counts[step] if step in self.counts else math.nan

    def reference(self, step: Tensor) -> Tensor:
        """Return `mean` of each token's step: [M] -> [M] fp64."""
        steps, where = torch.unique(step, return_inverse=True)
        means = [self.mean(int(s)) for s in steps.tolist()]
        return torch.tensor(means, dtype=torch.float64, device=step.device)[where]

    def updated(self, entropy: Tensor, step: Tensor, weight: Tensor) -> EntropyHistory:
        """Return the history with one more iteration; call it once, with all its tokens.

        Args:
            entropy: nats per trained token, [M].
            step: environment step of each, int64 [M].
            weight: as in the loss, [M]; steps without weight are left as they are.
        """
        sums, counts = dict(self.sums), dict(self.counts)
        values, weights = entropy.detach().double(), weight.detach().double()
        for s in torch.unique(step).tolist():
            here = step == s
            total = float(weights[here].sum())
            if total > 0:
                mean = float((weights[here] * values[here]).sum()) / total
                sums[s] = sums.get(s, 0.0) + mean
                counts[s] = counts.get(s, 0) + 1
        return EntropyHistory(sums, counts)


def entropy_bonus(
    entropy: Tensor, step: Tensor, weight: Tensor, *, coefficient: float = 0.001
) -> Tensor:
    """Return the plain bonus: minus `coefficient` times the weighted mean entropy.

    Source: Williams & Peng 1991; the coefficient as in RAGEN. A scalar with gradient.
    """
    return -coefficient * (weight * entropy).sum()


def epo(
    entropy: Tensor,
    step: Tensor,
    weight: Tensor,
    *,
    history: EntropyHistory,
    epoch: float,
    epochs: int = 150,
    bonus: float = 0.001,
    smoothing: float = 1.0,
    low: float = 0.8,
    high: float = 1.2,
    smoother: Smoother = Smoother.SQUARED,
    delta: float = 0.1,
) -> Tensor:
    """Reward entropy, minus a penalty for leaving the band around the step's historical mean.

    `-bonus * (agg(H) - smoothing * phase_weight * agg(P))`, agg the weighted sum.

    Source: EPO (Xu et al. 2025), release. The release penalises by a constant, which has no
    gradient: there the bonus acts alone. The default here pushes back; `indicator` is the
    released form. Not taken over: the release applies the penalty only if its micro-batch
    holds a late step, and in its sequence mode tests means over padding. Its bands differ:
    [0.8, 1.2] by configuration file, [0, 2] in the published commands.

    Args:
        entropy: nats per trained token with gradient, [M].
        step: environment step of each, int64 [M].
        weight: as in the loss, [M].
        history: of past iterations; steps that none reached are not penalised.
        epoch: progress of the run, of `epochs`.
        bonus: coefficient of the whole term.
        smoothing: coefficient of the penalty within it.
        low: lower edge of the band, as a share of the historical mean; at most 1.
        high: upper edge, likewise; at least 1.
        smoother: form of the penalty.
        delta: the constant of the indicator form (0.05 on ScienceWorld).

    Raises:
        RecipeError: the band does not contain 1.
    """
    if not 0 <= low <= 1 <= high:
        raise RecipeError(f"The entropy band [{low}, {high}] must hold 1 and not be negative.")
    reference = history.reference(step).to(entropy)
    match smoother:
        case Smoother.SQUARED:
            penalty = squared_excess(entropy, reference, low=low, high=high)
        case Smoother.INDICATOR:
            penalty = outside(entropy, reference, low=low, high=high, delta=delta)
    strength = smoothing * phase_weight(epoch, epochs)
    return -bonus * (weight * (entropy - strength * penalty)).sum()


def squared_excess(
    entropy: Tensor, reference: Tensor, *, low: float = 0.8, high: float = 1.2
) -> Tensor:
    """Return the squared distance of each entropy to its band: [M] -> [M], differentiable.

    Zero inside `[low * reference, high * reference]`, and where the reference is NaN.
    """
    # a NaN would poison the gradient even where it is masked; this reference is inside its band
    known = torch.where(reference.isnan(), entropy.detach(), reference)
    above = torch.relu(entropy - high * known)
    below = torch.relu(low * known - entropy)
    return above**2 + below**2


def outside(
    entropy: Tensor, reference: Tensor, *, low: float = 0.8, high: float = 1.2, delta: float = 0.1
) -> Tensor:
    """Return the released penalty: `delta` outside the open band, else 0; no gradient.

    The edge of the band counts as outside.
    """
    value = entropy.detach()
    inside = (low * reference < value) & (value < high * reference)
    penalty = torch.full_like(value, delta)
    return torch.where(inside | reference.isnan(), torch.zeros_like(value), penalty)


def phase_weight(epoch: float, epochs: int = 150) -> float:
    """Return the penalty's strength at `epoch` of `epochs`: from 1 slowly to 0.83, then to 0.04.

    Source: EPO release. The curve jumps from 0.827 to 0.8 at half time and does not end at 0.

    Raises:
        RecipeError: there are no epochs, or the epoch is negative.
    """
    if epochs < 1 or epoch < 0:
        raise RecipeError(f"EPO is at epoch {epoch} of {epochs}; it needs 0 <= epoch, 1 <= epochs.")
    half = epochs / 2
    if epoch <= half:
        return 1 - 0.2 * (1 - math.exp(-2 * epoch / half))
    return 0.8 * math.exp(-3 * (epoch - half) / half)
