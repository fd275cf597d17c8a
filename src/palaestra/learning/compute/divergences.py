"""Divergences between a student and a teacher at each trained token, without keeping logits.

Logits of both over a whole vocabulary exist for one chunk of positions at a time: the backward
pass computes those of each chunk again, as in `logprobs`. It adds to the gradients of the head's
weights after each chunk: `backward` reaches these weights, `torch.autograd.grad` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from palaestra.learning.losses.kl import Divergence, divergence
from palaestra.models.local.network import DecoderNetwork

CHUNK = 32
"""Positions whose logits exist at once: several tensors of their size do, in fp32. Together they
take about as much as the logits of `logprobs.CHUNK` positions, which `memory_budget` counts."""

Logits = Callable[[Tensor], Tensor]
"""States of the last block [m, width] -> logits [m, V]."""


def token_divergences(
    network: DecoderNetwork,
    hidden: Tensor,
    targets: Tensor,
    teacher: Tensor,
    teacher_logits: Logits,
    temperature: float,
    direction: Divergence,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each token's divergence from the teacher, its log-probability and its entropy.

    Args:
        network: provides the student's `logits`.
        hidden: states of the last block that the student predicts the targets from, [M, width].
        targets: int64 [M].
        teacher: the states that the teacher predicts them from, [M, width].
        teacher_logits: the teacher's logits of such states, also in the backward pass.
        temperature: of the sampler; the logits of both are divided by it.
        direction: of the divergence.

    Returns:
        divergences [M] in nats, with gradient; log-probabilities [M] and entropies [M] of the
        student, without; all in at least fp32.
    """
    if torch.is_grad_enabled() and not hidden.requires_grad:
        hidden = hidden.detach().requires_grad_()  # for the gradients of the head's own weights
    wide = network.wide_dtype

    def scores(states: Tensor) -> Tensor:
        return network.logits(states).to(wide) / temperature

    @torch.no_grad()
    def given(states: Tensor) -> Tensor:
        return teacher_logits(states).to(wide) / temperature

    found = _TokenDivergences.apply(hidden, targets, teacher, scores, given, wide, direction)  # type: ignore[no-untyped-call]
    return found[0], found[1], found[2]


class _TokenDivergences(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        teacher: Tensor,
        scores: Logits,
        given: Logits,
        wide: torch.dtype,
        direction: Divergence,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = len(targets)
        divergences, lp, entropy = (hidden.new_empty(count, dtype=wide) for _ in range(3))
        for at in range(0, count, CHUNK):
            own = slice(at, at + CHUNK)
            student = scores(hidden[own])
            divergences[own] = divergence(direction, student, given(teacher[own]))
            logs = student.log_softmax(1)
            lp[own] = logs.gather(1, targets[own].unsqueeze(1)).squeeze(1)
            entropy[own] = -(logs.exp() * logs).sum(1)
            del student, logs  # before there are others
        ctx.save_for_backward(hidden, teacher)
        ctx.scores, ctx.given, ctx.direction = scores, given, direction
        ctx.mark_non_differentiable(lp, entropy)
        return divergences, lp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden, teacher = ctx.saved_tensors
        grad = torch.empty_like(hidden)
        for at in range(0, len(hidden), CHUNK):
            own = slice(at, at + CHUNK)
            part = hidden[own].detach().requires_grad_()
            with torch.enable_grad():
                found = divergence(ctx.direction, ctx.scores(part), ctx.given(teacher[own]))
            found.backward(slope[own])
            assert part.grad is not None
            grad[own] = part.grad
            del part, found  # before there are others
        return grad, None, None, None, None, None, None
