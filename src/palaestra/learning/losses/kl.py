"""KL divergences per token: estimates against a reference policy, and exact ones from a teacher.

With `d = lp - lp_ref` on tokens that the policy itself sampled, all but k2 have the
right mean; as a loss, what counts is the mean of the *gradient*, and there the order
differs: k2 and "k3+" are right, k3 is biased, k1 has a gradient of mean zero.
KL in the reward (`in_reward`) and in the loss (`penalty`) are not the same: only the
first passes through discounting, baselines and normalisation.

A distilled student learns the exact divergence from a teacher: over the whole vocabulary, at each
recorded token, whoever sampled it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor

from palaestra.core.errors import InputError, UnknownName
from palaestra.learning.losses.trained_tokens import MAX_LOG_RATIO, Tokens, ratio

MAX_K3 = 10.0  # nats; verl's bound on the estimate of one token


class Estimator(StrEnum):
    """The function of `d = lp - lp_ref` that estimates the divergence."""

    K1 = "k1"  # d
    K2 = "k2"  # d^2 / 2
    K3 = "k3"  # exp(-d) + d - 1
    K3_PLUS = "k3+"  # the value of k3, the gradient of k2
    K3_WEIGHTED = "k3-weighted"  # k3 times exp(lp - lp_old)


def k1(lp: Tensor, lp_ref: Tensor) -> Tensor:
    """Return `d`: unbiased, either sign; as a loss its gradient has mean zero. [M] -> [M]."""
    return lp - lp_ref


def k2(lp: Tensor, lp_ref: Tensor) -> Tensor:
    """Return `d^2 / 2`: a biased value, but its mean gradient is that of the KL. [M] -> [M]."""
    return (lp - lp_ref).square() / 2


def k3(lp: Tensor, lp_ref: Tensor) -> Tensor:
    """Return `exp(-d) + d - 1`: unbiased and never negative; biased as a loss. [M] -> [M].

    Bounded twice, as in verl: `d` to +-20, and the estimate to 10, or one token (up to 5e8)
    would dominate all others. A token beyond the bounds (`d` below -2.6 or above 11) counts
    with 10 and has no gradient; within them the statements above hold.
    """
    d = torch.clamp(lp - lp_ref, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.clamp(torch.exp(-d) + d - 1, max=MAX_K3)


def k3_plus(lp: Tensor, lp_ref: Tensor) -> Tensor:
    """Return the bounded value of k3 with the gradient of k2 (straight-through).

    The gradient has no bound: it is `d`, also where the value stays at 10. [M] -> [M].
    """
    gradient = k2(lp, lp_ref)
    return k3(lp, lp_ref).detach() + gradient - gradient.detach()


def k3_weighted(lp: Tensor, lp_ref: Tensor, lp_old: Tensor) -> Tensor:
    """Return k3 times the importance ratio: right also for tokens that older weights sampled.

    Source: DeepSeek-V3.2, as recorded by TRL. The gradient flows through the ratio as well;
    its mean over tokens of the old policy is that of the KL. TRL bounds neither factor, we
    bound both, each with its own gradient only within its bounds. [M] -> [M].
    """
    return ratio(lp, lp_old) * k3(lp, lp_ref)


def penalty(estimator: str, lp: Tensor, lp_ref: Tensor, lp_old: Tensor) -> Tensor:
    """Return the estimate of that name, to be added to a loss times beta.

    Source: Schulman 2020 (k1, k2, k3); verl (all but the weighted one).

    Args:
        estimator: one of `Estimator`.
        lp, lp_ref, lp_old: shape [M]; `lp_old` enters the weighted estimate only.

    Raises:
        UnknownName: no such estimator.
    """
    try:
        kind = Estimator(estimator)
    except ValueError:
        raise UnknownName("KL estimator", estimator, Estimator) from None
    match kind:
        case Estimator.K1:
            return k1(lp, lp_ref)
        case Estimator.K2:
            return k2(lp, lp_ref)
        case Estimator.K3:
            return k3(lp, lp_ref)
        case Estimator.K3_PLUS:
            return k3_plus(lp, lp_ref)
        case Estimator.K3_WEIGHTED:
            return k3_weighted(lp, lp_ref, lp_old)


def in_reward(
    rewards: Sequence[float], lp: Sequence[float], lp_ref: Sequence[float], *, beta: float
) -> list[float]:
    """Return rewards per token minus KL, `r_t - beta * k1_t`, for a credit rule afterwards.

    Source: verl (KL in the reward). The three lists have one entry per sampled token.
    """
    return [
        reward - beta * (now - reference)
        for reward, now, reference in zip(rewards, lp, lp_ref, strict=True)
    ]


# ── exact divergences ────────────────────────────────────────────────────────


class Divergence(StrEnum):
    """The direction of the divergence that a student minimises."""

    FORWARD = "forward"  # KL(teacher || student): covers all that the teacher does
    REVERSE = "reverse"  # KL(student || teacher): does nothing that the teacher does not


def forward_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(teacher || student) at each position, in nats.

    Source: Hinton et al. 2015. With scores z of the student, its gradient is
    `softmax(z) - softmax(teacher)`.

    Args:
        student: scores before the softmax, shape [..., V].
        teacher: likewise; of the same vocabulary.

    Returns:
        shape [...]; never negative, and zero only where the distributions are equal.
    """
    own, given = student.log_softmax(-1), teacher.log_softmax(-1)
    return (given.exp() * (given - own)).sum(-1)


def reverse_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(student || teacher) at each position, in nats; arguments as in `forward_kl`.

    Source: Gu et al. 2024 (MiniLLM), of whose loss this is the part of one token.
    """
    return forward_kl(teacher, student)


def divergence(direction: Divergence, student: Tensor, teacher: Tensor) -> Tensor:
    """Return the divergence of that direction, [..., V] -> [...]."""
    match direction:
        case Divergence.FORWARD:
            return forward_kl(student, teacher)
        case Divergence.REVERSE:
            return reverse_kl(student, teacher)


def distillation(tokens: Tokens) -> Tensor:
    """Return each token's divergence from the teacher, [M]; see `Learner.updating`.

    Raises:
        InputError: the step computes none.
    """
    if tokens.divergence is None:
        raise InputError(
            "The loss 'distillation' needs the divergence from a teacher; give its direction to "
            "the learner's update."
        )
    return tokens.divergence
