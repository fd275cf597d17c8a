"""Corrections: weights for tokens that another policy sampled than the one that learns.

`w = exp(lp_old - lp_beh)` is how much likelier the weights at the start of the update
make a token than its sampler did. A correction turns it into a weight per token, without
gradient, that multiplies the token's loss; zero rejects the token. No denominator changes
with it, or the remaining tokens would weigh more. Where `lp_old` is taken from the sampler,
every weight is one: the loss's own ratio then corrects already.

All of them are fixed once the update starts. `level` is the unit of one weight
(token, turn or rollout); the tokens given must hold each such unit whole.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.losses.trained_tokens import (
    MAX_LOG_RATIO,
    Tokens,
    Unit,
    unit_ids,
    unit_mean,
    unit_sum,
)
from palaestra.learning.methods.component import Kind, Options, Status, component
from palaestra.learning.methods.options import Cap, Floor, NotNegative, Share


class Divergence(StrEnum):
    """The measure of divergence that `rejection` judges a token by."""

    K1 = "k1"  # the ratio w itself; bounds on both sides
    K2 = "k2"  # (log w)^2 / 2
    K3 = "k3"  # w - log w - 1


class Reduce(StrEnum):
    """The reduction by which the tokens of a unit are judged together."""

    SUM = "sum"  # for k1 the product of ratios
    MEAN = "mean"  # for k1 their geometric mean
    MAX = "max"  # the worst token decides: each must pass by itself


@component(
    Kind.CORRECTION,
    "tis",
    source="Yao et al. 2025 (truncated importance sampling), as in verl, TRL and slime",
    status=Status.RELEASE,
)
def tis(
    tokens: Tokens,
    *,
    cap: Cap = 2.0,
    floor: Floor = 0.0,
    level: Unit = Unit.TOKEN,
    normalise: bool = False,
) -> Tensor:
    """Truncate importance weights: `clip(w, floor, cap)`.

    At level turn or rollout `w` is the product over the unit: without bias, but it shrinks
    or grows with length; per token its bias grows with the square of the length.

    Args:
        cap: usually 1.5 to 5 per token, 2 to 10 per rollout; slime also sets floor 0.5.
        normalise: divide by the mean weight, after truncation (by default verl does not, slime
            does). The mean is over the units of `tokens`, so give it the whole batch at once.

    Returns:
        shape [M], between floor and cap unless normalised.

    Raises:
        RecipeError: floor <= 1 <= cap does not hold.
    """
    check_bounds("tis", floor, 1, cap)
    ids = unit_ids(tokens, as_unit(level))
    weight = _log_weights(tokens, ids).exp().clamp(floor, cap)
    if not normalise or not len(weight):
        return weight
    share = 1 / unit_sum(torch.ones_like(weight), ids)  # so that each unit counts once
    return weight / ((weight * share).sum() / share.sum())


@component(
    Kind.CORRECTION,
    "mis",
    source="masked importance sampling (IcePop), as in verl and TRL",
    status=Status.RELEASE,
)
def mis(tokens: Tokens, *, low: Floor = 0.5, high: Cap = 2.0, level: Unit = Unit.TOKEN) -> Tensor:
    """Mask importance weights: `w` where `low <= w <= high`, else zero.

    Returns:
        shape [M]. At level turn or rollout `w` is the product over the unit, and long units
        leave the bounds sooner: `rejection` by mean does not.

    Raises:
        RecipeError: low <= 1 <= high does not hold.
    """
    check_bounds("mis", low, 1, high)
    weight = _log_weights(tokens, unit_ids(tokens, as_unit(level))).exp()
    return torch.where((low <= weight) & (weight <= high), weight, torch.zeros_like(weight))


def _keeps_what_is_on_policy(options: Options) -> None:
    """Raise RecipeError unless `rejection` with these options keeps tokens without divergence."""
    none = 1 if options["estimator"] == Divergence.K1 else 0
    check_bounds("rejection", options["low"], none, options["high"])


@component(
    Kind.CORRECTION,
    "rejection",
    source="rejection masks of rollout correction, as in verl",
    status=Status.RELEASE,
    check=_keeps_what_is_on_policy,
)
def rejection(
    tokens: Tokens,
    *,
    estimator: Divergence = Divergence.K3,
    level: Unit = Unit.ROLLOUT,
    reduce: Reduce = Reduce.MEAN,
    low: NotNegative = 0.0,
    high: NotNegative = 0.01,
) -> Tensor:
    """Return one or zero: reject what diverges from its sampler beyond bounds, without weighting.

    k1 with reduce mean is the geometric mean of the ratios (bounds 0.999 and 1.001 are
    usual), with sum their product; k3 with mean is usual with high 0.001 to 0.01. verl
    bounds 1/w where we bound w; bounds that are each other's inverse make no difference.

    Args:
        estimator: one of `Divergence`.
        reduce: one of `Reduce`, over the unit that `level` names.
        low, high: tokens between them are kept, both included; low is for k1 only.

    Returns:
        shape [M], zeros and ones.

    Raises:
        RecipeError: the bounds would reject tokens that are exactly on policy (k1: ratio 1,
            k2 and k3: divergence 0).
        UnknownName: no such estimator, level or reduction.
    """
    kind, how = _divergence(estimator), _reduce(reduce)
    check_bounds("rejection", low, 1 if kind is Divergence.K1 else 0, high)
    ids = unit_ids(tokens, as_unit(level))
    log_w = (tokens.lp_old - tokens.lp_beh).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    match kind:
        case Divergence.K1:
            each = log_w
        case Divergence.K2:
            each = log_w.square() / 2
        case Divergence.K3:
            each = (log_w.expm1() - log_w).clamp(min=0)  # rounding may make it negative
    match how:
        case Reduce.SUM:
            statistic = unit_sum(each, ids)
        case Reduce.MEAN:
            statistic = unit_mean(each, ids)
        case Reduce.MAX:
            statistic = each
    if kind is Divergence.K1:
        statistic = statistic.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    outside = ((statistic < low) | (statistic > high)).to(log_w.dtype)
    return (unit_sum(outside, ids) == 0).to(log_w.dtype)


@component(
    Kind.CORRECTION,
    "veto",
    source="token veto of rollout correction, as in slime and in earlier verl",
    status=Status.RELEASE,
)
def veto(tokens: Tokens, *, threshold: Share = 1e-4, level: Unit = Unit.ROLLOUT) -> Tensor:
    """Return one or zero: one token with a ratio below the threshold rejects its whole rollout.

    Such a token is almost impossible under the learner's weights: what follows it was
    sampled in a context that the policy would not have reached.

    Returns:
        shape [M], zeros and ones.

    Raises:
        RecipeError: the threshold is not between 0 and 1.
    """
    check_bounds("veto", 0, threshold, 1)
    ids = unit_ids(tokens, as_unit(level))
    weight = (tokens.lp_old - tokens.lp_beh).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return (unit_sum((weight < threshold).to(weight.dtype), ids) == 0).to(weight.dtype)


def as_unit(name: str) -> Unit:
    """Return the unit of that name, or raise UnknownName."""
    try:
        return Unit(name)
    except ValueError:
        raise UnknownName("unit", name, Unit) from None


def check_bounds(part: str, low: float, value: float, high: float) -> None:
    """Raise RecipeError unless low <= value <= high."""
    if not low <= value <= high:
        raise RecipeError(
            f"The bounds of '{part}' break {low} <= {value} <= {high}; choose others, or tokens "
            "that are exactly on policy would be changed or rejected."
        )


def _log_weights(tokens: Tokens, ids: Tensor) -> Tensor:
    """Return the log of the product of ratios over each token's unit, bounded to +-20: [M]."""
    log_w = (tokens.lp_old - tokens.lp_beh).detach()
    return unit_sum(log_w, ids).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _divergence(name: str) -> Divergence:
    try:
        return Divergence(name)
    except ValueError:
        raise UnknownName("estimator of rejection", name, Divergence) from None


def _reduce(name: str) -> Reduce:
    try:
        return Reduce(name)
    except ValueError:
        raise UnknownName("reduction", name, Reduce) from None
