"""Policy losses: from log-probabilities and advantages to one loss per trained token.

The aggregation decides how tokens add up, and a correction weighs tokens of other samplers;
both multiply the result of a loss.

Where one ratio is taken over a turn or a rollout, each of its tokens has the unit's loss as
its value, with its own advantage, while the gradient reaches only the token's own
log-probability, scaled so that the *mean* over the unit's tokens has exactly the gradient
of the unit's objective. `TURN_MEAN` therefore gives the mean over turns and
`ROLLOUT_TOKEN_MEAN` the mean over rollouts, as published, and a token that a correction
rejects has no effect, not even through its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.losses.corrections import as_unit, check_bounds
from palaestra.learning.losses.kl import Estimator, penalty
from palaestra.learning.losses.trained_tokens import (
    Tokens,
    Unit,
    ratio,
    unit_ids,
    unit_mean,
    unit_sum,
)
from palaestra.learning.methods.component import (
    Component,
    Kind,
    Need,
    Options,
    Status,
    component,
    find,
)
from palaestra.learning.methods.options import Cap, Floor, NotNegative, Range, Share

Mode = Literal["mask", "truncate"]
MODES = get_args(Mode)
Dual = Annotated[float, Range(above=1, most=math.inf)]


def _has_beta(options: Options) -> bool:
    return bool(options["beta"] > 0)


@component(Kind.LOSS, "pg", source="Williams 1992 (REINFORCE), as in verl", status=Status.RELEASE)
def pg(tokens: Tokens) -> Tensor:
    """Plain policy gradient, `-A * lp`: one update per batch, no ratio, no clipping.

    Returns:
        shape [M]; does not depend on `lp_old`.
    """
    return -tokens.advantage * tokens.lp


@component(
    Kind.LOSS,
    "ppo",
    source="Schulman et al. 2017 (PPO), Ye et al. 2020 (dual clip), as in verl",
    status=Status.RELEASE,
)
def ppo(tokens: Tokens, *, low: Share = 0.2, high: NotNegative = 0.2, dual: Dual = 3.0) -> Tensor:
    """Clipped surrogate per token, bounded for negative advantages too (dual clip).

    `max(-A * rho, -A * clip(rho, 1 - low, 1 + high))`; where A < 0 at most `-A * dual`.

    Args:
        dual: above 1; without it (`inf`: TRL's default) a token that becomes likely again has
            a loss without bound.

    Returns:
        shape [M].
    """
    return _clipped(ratio(tokens.lp, tokens.lp_old), tokens.advantage, low, high, dual)


@component(
    Kind.LOSS, "loop", source="Chen et al. 2025 (LOOP), as in ml-loop", status=Status.RELEASE
)
def loop(tokens: Tokens, *, epsilon: NotNegative = 0.1, unit: Unit = Unit.TOKEN) -> Tensor:
    """Clipped surrogate with bounds symmetric in logarithms, per token, turn or rollout.

    `-min(rho * A, g(A))` with g(A) = (1 + epsilon) A if A >= 0, else A / (1 + epsilon): the
    ratio is bounded by [1 / (1 + epsilon), 1 + epsilon], not [1 - epsilon, 1 + epsilon].
    `rho` is the product of the unit's token ratios. The release has tokens and rollouts;
    turns are known from a digest. Aggregate with `ROLLOUT_TOKEN_MEAN`, for turns `TURN_MEAN`.

    Returns:
        shape [M]; before any update the gradient is -A times the tokens of the unit (the
        aggregation takes a mean over it), so that a rollout's gradient is that of its product.
        Products leave the bounds (and +-20 in logarithms) the sooner the longer the unit.

    Raises:
        RecipeError: epsilon is negative.
        UnknownName: no such unit.
    """
    check_bounds("loop", 1 / (1 + epsilon), 1, 1 + epsilon)
    ids = unit_ids(tokens, as_unit(unit))
    difference = (tokens.lp - tokens.lp_old).detach()
    size = unit_sum(torch.ones_like(difference), ids)
    rho = _exp(unit_sum(difference, ids) + size * _own(tokens))
    advantage = tokens.advantage
    bound = torch.where(advantage >= 0, advantage * (1 + epsilon), advantage / (1 + epsilon))
    return -torch.minimum(rho * advantage, bound)


@component(
    Kind.LOSS,
    "grpo",
    source="Shao et al. 2024 (GRPO), as in verl and TRL",
    status=Status.RELEASE,
    when={Need.REFERENCE: _has_beta},
)
def grpo(
    tokens: Tokens,
    *,
    low: Share = 0.2,
    high: NotNegative = 0.2,
    dual: Dual = 3.0,
    beta: NotNegative = 0.0,
    kl: Estimator = Estimator.K3,
) -> Tensor:
    """PPO's clipped surrogate plus `beta` times an estimate of the KL to a reference.

    DeepSeekMath had beta 0.04, R1 0.001 with a clip at 10; TRL's default is 0. Dual clip is
    verl's (`inf`: none, as in the paper and TRL). Dr.GRPO is the same loss, aggregated with
    `ROLLOUT_TOKEN_NORM`.

    Args:
        beta: above 0 needs reference log-probabilities.
        kl: one of `Estimator`.

    Returns:
        shape [M].

    Raises:
        RecipeError: beta is not 0 and the tokens have no reference log-probabilities.
        UnknownName: no such estimator.
    """
    rho = ratio(tokens.lp, tokens.lp_old)
    return _with_kl(_clipped(rho, tokens.advantage, low, high, dual), tokens, beta, kl)


@component(
    Kind.LOSS, "dapo", source="Yu et al. 2025 (DAPO), as in verl and TRL", status=Status.RELEASE
)
def dapo(tokens: Tokens, *, low: Share = 0.2, high: NotNegative = 0.28, dual: Dual = 3.0) -> Tensor:
    """PPO's clipped surrogate with more room above than below (clip-higher), no KL.

    Aggregate with `TOKEN_MEAN`; dynamic sampling and overlong shaping are a filter and a
    reward. Dual clip is verl's (`inf`: none).

    Returns:
        shape [M].
    """
    return _clipped(ratio(tokens.lp, tokens.lp_old), tokens.advantage, low, high, dual)


@component(
    Kind.LOSS,
    "gspo",
    source="Zheng et al. 2025 (GSPO), as in verl, TRL and AReaL",
    status=Status.RELEASE,
    when={Need.REFERENCE: _has_beta},
)
def gspo(
    tokens: Tokens,
    *,
    low: Share = 3e-4,
    high: NotNegative = 4e-4,
    unit: Literal[Unit.TURN, Unit.ROLLOUT] = Unit.ROLLOUT,
    beta: NotNegative = 0.0,
    kl: Estimator = Estimator.K3,
) -> Tensor:
    """Clipped surrogate with one ratio per rollout or turn: the geometric mean of its tokens'.

    The bounds are a thousandth of PPO's, as means move little; PPO's own would never clip.
    Each token keeps its own advantage (as in verl; AReaL averages them over the sequence). A
    mean over ten thousand tokens hides one bad turn: for agents, take the turn as unit.
    Aggregate with `ROLLOUT_TOKEN_MEAN`.

    Returns:
        shape [M]; before any update the gradient is -A.

    Raises:
        RecipeError: the unit is a token (that is `ppo`), or beta is not 0 and the tokens have
            no reference log-probabilities.
        UnknownName: no such unit or estimator.
    """
    over = as_unit(unit)
    if over is Unit.TOKEN:
        raise RecipeError(
            "The loss 'gspo' takes one ratio over a turn or a rollout, but its unit is 'token'; "
            "choose 'turn' or 'rollout', or the loss 'ppo'."
        )
    difference = (tokens.lp - tokens.lp_old).detach()
    rho = _exp(unit_mean(difference, unit_ids(tokens, over)) + _own(tokens))
    return _with_kl(_clipped(rho, tokens.advantage, low, high, math.inf), tokens, beta, kl)


@component(
    Kind.LOSS,
    "cispo",
    source="MiniMax 2025 (CISPO), as in verl, TRL, slime and AReaL",
    status=Status.RELEASE,
)
def cispo(tokens: Tokens, *, cap: Cap = 5.0, floor: Floor = 0.0) -> Tensor:
    """Policy gradient weighted by a truncated ratio: `-clip(rho, floor, cap) * A * lp`.

    Clipping bounds the weight but never drops a token's gradient. Nothing bounds negative
    advantages: with stale data add a masking correction. Aggregate with `TOKEN_MEAN`.

    Args:
        cap, floor: the bounds on the ratio themselves, as in TRL (5 in ScaleRL's recipe);
            verl, slime and AReaL write the same as 1 + high and 1 - low.

    Returns:
        shape [M]; no gradient through the ratio.

    Raises:
        RecipeError: floor <= 1 <= cap does not hold.
    """
    check_bounds("cispo", floor, 1, cap)
    weight = ratio(tokens.lp, tokens.lp_old).detach().clamp(floor, cap)
    return -weight * tokens.advantage * tokens.lp


@component(
    Kind.LOSS,
    "decoupled",
    source="Hilton et al. 2022, Fu et al. 2025, as in AReaL",
    status=Status.RELEASE,
)
def decoupled(
    tokens: Tokens,
    *,
    low: Share = 0.2,
    high: NotNegative = 0.2,
    cap: Annotated[float, Range(least=1, most=math.inf)] = 5.0,
    mode: Mode = "mask",
    approximate: bool = False,
) -> Tensor:
    """PPO around the weights at the start of the update, for tokens that older ones sampled.

    `w * max(-A * r, -A * clip(r, 1 - low, 1 + high))` with w = pi_prox / pi_beh, without
    gradient, and r = pi / pi_prox. It contains its correction: adding `tis` counts it twice.

    Args:
        cap: bound on w; `inf` does no filtering at all.
        mode: `mask` rejects tokens with w above the cap, `truncate` cuts w there.
        approximate: estimate pi_prox from versions (see `proximal`) instead of reading `lp_old`.

    Returns:
        shape [M]; 0 where rejected.

    Raises:
        RecipeError: the cap is below 1.
        UnknownName: no such mode.
    """
    if mode not in MODES:
        raise UnknownName("mode of 'decoupled'", mode, MODES)
    check_bounds("decoupled", 0, 1, cap)
    lp_prox = (proximal(tokens) if approximate else tokens.lp_old).detach()
    weight = ratio(lp_prox, tokens.lp_beh)
    if mode == "mask":
        weight = torch.where(weight <= cap, weight, torch.zeros_like(weight))
    rho = ratio(tokens.lp, lp_prox)
    return weight.clamp(max=cap) * _clipped(rho, tokens.advantage, low, high, math.inf)


def proximal(tokens: Tokens) -> Tensor:
    """Interpolate log-probabilities of the proximal policy, without a forward pass.

    `lp_beh + a (lp - lp_beh)`, a = (proximal - version) / (current - version), between 0 and
    1; 0 for tokens of the present version. Source: AReaL's documentation (log-linear).

    Args:
        tokens: with `current` ahead of `proximal`, as the weights under training are; where
            they are equal, pi_prox is pi and nothing is ever clipped.

    Returns:
        shape [M], no gradient.
    """
    lp = tokens.lp.detach()
    passed = (tokens.proximal - tokens.version).clamp(min=0).to(lp.dtype)
    whole = (tokens.current - tokens.version).clamp(min=1).to(lp.dtype)
    return tokens.lp_beh + (passed / whole).clamp(max=1) * (lp - tokens.lp_beh)


def unit_of(part: Component | str, options: Mapping[str, Any]) -> Unit:
    """Return the unit that a configured loss or correction needs whole within a micro-batch.

    Args:
        part: a loss or a correction, or the name of a loss.
        options: those it is configured with.

    Raises:
        UnknownName: no such loss or unit.
    """
    found = find(Kind.LOSS, part) if isinstance(part, str) else part
    for name in ("unit", "level"):
        if name in found.options:
            return as_unit(options.get(name, found.options[name]))
    return Unit.TOKEN


def _clipped(rho: Tensor, advantage: Tensor, low: float, high: float, dual: float) -> Tensor:
    check_bounds("clip", 1 - low, 1, 1 + high)
    check_bounds("dual clip", 1, dual, math.inf)
    loss = torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - low, 1 + high))
    if dual == math.inf:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -advantage * dual), loss)


def _with_kl(loss: Tensor, tokens: Tokens, beta: float, kl: str) -> Tensor:
    if not beta:
        return loss
    if tokens.lp_ref is None:
        raise RecipeError(
            f"The loss has beta = {beta}, but the tokens have no reference log-probabilities; "
            "keep a reference policy or set beta to 0."
        )
    return loss + beta * penalty(kl, tokens.lp, tokens.lp_ref, tokens.lp_old)


def _own(tokens: Tokens) -> Tensor:
    """Return zero, with the gradient of the token's own log-probability: [M]."""
    return tokens.lp - tokens.lp.detach()


def _exp(log_ratio: Tensor) -> Tensor:
    return ratio(log_ratio, torch.zeros_like(log_ratio))
