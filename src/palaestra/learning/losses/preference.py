"""Preference losses, and the advantages that give a policy-gradient loss their gradients.

A preference loss couples whole responses, which a micro-batch may not hold together. But it depends
on the weights only through each response's log-probability, the sum over its trained tokens. So its
gradient is the sum over responses of dL/dlp times the gradient of lp: that of the plain
policy-gradient loss `-A * lp` with `A = -dL/dlp` on every token of the response. The learner first
computes all log-probabilities, then trains with these advantages in any micro-batches, exactly.
They hold for the weights at which they were computed: recompute them after each optimiser step.

Two families: losses of pairs, `(chosen, rejected, ref_chosen, ref_rejected) -> [N]`, and of labels,
`(policy, ref, desirable, kl) -> [N]`; all are log-probabilities of whole responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.data.examples.preferred import Response
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import NotNegative, Positive, Range


@component(
    Kind.PREFERENCE,
    "dpo",
    source="Rafailov et al. 2023; label smoothing Mitchell 2023 (cDPO)",
    status=Status.PAPER,
    needs=[Need.REFERENCE, Need.PREFERENCE],
)
def dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    beta: Positive = 0.1,
    label_smoothing: Annotated[float, Range(least=0, below=0.5)] = 0.0,
) -> Tensor:
    """Pairs: minus the log-probability that the chosen response has the higher implicit reward.

    `-log sigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))`. With label smoothing
    e, `(1 - e)` of it and `e` of the same with the pair swapped.

    Args:
        chosen, rejected: log-probabilities under the policy, shape [N], nats.
        ref_chosen, ref_rejected: the same under the frozen reference.
        beta: how strongly the policy is kept near the reference.
        label_smoothing: share of pairs thought to be labelled wrongly, in [0, 0.5).

    Returns:
        Loss per pair, shape [N].

    Raises:
        InputError: label smoothing outside [0, 0.5).
    """
    if not 0 <= label_smoothing < 0.5:
        raise InputError(
            f"label_smoothing = {label_smoothing:g} makes pairs useless (0.5) or reverses them "
            "(above); give one in [0, 0.5)."
        )
    logit = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    right, swapped = -F.logsigmoid(logit), -F.logsigmoid(-logit)
    return (1 - label_smoothing) * right + label_smoothing * swapped


@component(
    Kind.PREFERENCE,
    "step-dpo",
    source="Zhai et al. 2024 (step-level Q models)",
    status=Status.EXPERIMENTAL,
    needs=[Need.REFERENCE, Need.PREFERENCE],
)
def step_dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    beta: Positive = 0.1,
) -> Tensor:
    """Pairs of single replies to the same history: DPO on the tokens of one step.

    Trains a model of step values: `implicit_reward` of its log-probabilities ranks actions. Zhai
    et al. train a model of its own for that and keep the acting policy frozen.

    Args:
        chosen, rejected: log-probabilities of the two replies under the policy, shape [N], nats.
        ref_chosen, ref_rejected: the same under the frozen reference.
        beta: how strongly the policy is kept near the reference.

    Returns:
        Loss per pair, shape [N].
    """
    return dpo(chosen, rejected, ref_chosen, ref_rejected, beta=beta)


@component(
    Kind.PREFERENCE,
    "kto",
    source="Ethayarajh et al. 2024, as released in TRL; on single steps Ye et al. 2025 (MaKTO)",
    status=Status.RELEASE,
    needs=[Need.REFERENCE, Need.PREFERENCE],
)
def kto(
    policy: Tensor,
    ref: Tensor,
    desirable: Tensor,
    kl: Tensor,
    *,
    beta: Positive = 0.1,
    weight_desirable: NotNegative = 1.0,
    weight_undesirable: NotNegative = 1.0,
) -> Tensor:
    """Labels: how little a response is gained (or lost) against the reference point.

    With `h = policy - ref` and `z = max(0, mean kl)`, without gradient: desirable responses lose
    `weight_desirable * (1 - sigmoid(beta * (h - z)))`, the others
    `weight_undesirable * (1 - sigmoid(beta * (z - h)))`.

    Args:
        policy, ref: log-probabilities of the responses under policy and reference, shape [N], nats.
        desirable: bool, shape [N].
        kl: `policy - ref` of mismatched responses (see `examples.labels.mismatched`), shape [J], of
            the whole batch and not of a micro-batch or rank.
        beta: how strongly the policy is kept near the reference.
        weight_desirable, weight_undesirable: see `examples.labels.balance`.

    Returns:
        Loss per label, shape [N].

    Raises:
        InputError: no mismatched responses.
    """
    if not kl.numel():
        raise InputError("KTO's reference point has no mismatched responses; give at least one.")
    gain = policy - ref - kl.detach().mean().clamp(min=0)
    won = torch.where(desirable, gain, -gain)
    weights = policy.new_tensor([weight_undesirable, weight_desirable])
    weight = weights[desirable.long()]
    return weight * (1 - torch.sigmoid(beta * won))


def implicit_reward(policy: Tensor, ref: Tensor, *, beta: float = 0.1) -> Tensor:
    """Return `beta * (policy - ref)`: the reward that makes the policy optimal; shape [N].

    Ranks n sampled actions where a model was trained by step DPO. Being a sum over tokens, it
    depends on length: compare replies of similar length.
    """
    return beta * (policy - ref)


def response_logprobs(responses: Sequence[Response], logprobs: Sequence[Sequence[float]]) -> Tensor:
    """Return the log-probability of each response, shape [N], fp64.

    Args:
        responses: N responses.
        logprobs: of the trained tokens of each row, for all rows of all responses in order.

    Raises:
        ValueError: not one list per row, or of another length than the row's trained tokens.
    """
    rows = [row for response in responses for row in response]
    if [row.trained for row in rows] != [len(values) for values in logprobs]:
        raise ValueError("log-probabilities do not fit the rows' trained tokens")
    sums = iter([sum(values) for values in logprobs])
    totals = [sum(next(sums) for _ in response) for response in responses]
    return torch.tensor(totals, dtype=torch.float64)


def coefficients(loss: Callable[..., Tensor], *logprobs: Tensor) -> tuple[Tensor, ...]:
    """Return minus the derivative of a loss by each response's log-probability.

    Args:
        loss: of `logprobs` alone (bind the rest with `functools.partial` or a lambda); returns the
            loss per pair or label, whose sum counts. Their mean is a matter of token weights: 1/N
            on every token.
        logprobs: shape [N] each, e.g. of chosen and rejected responses.

    Returns:
        One fp64 tensor per argument, of its shape; zero where the loss does not depend on it.
    """
    inputs = [lp.detach().double().requires_grad_() for lp in logprobs]
    found = torch.autograd.grad(loss(*inputs).sum(), inputs, materialize_grads=True)
    return tuple(-gradient for gradient in found)


def as_advantages(responses: Sequence[Response], coefficient: Tensor) -> list[list[float]]:
    """Return the advantage of every token for the loss `-A * lp`: a list per row, in order.

    Args:
        responses: N responses.
        coefficient: of each, from `coefficients`, shape [N].

    Returns:
        Lists as long as the rows; zero where a row does not train.
    """
    return [
        [value if on else 0.0 for on in row.mask]
        for response, value in zip(responses, coefficient.tolist(), strict=True)
        for row in response
    ]
