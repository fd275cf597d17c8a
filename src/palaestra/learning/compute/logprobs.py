"""Log-probability and entropy of each trained token, without keeping logits.

Logits over a whole vocabulary exist for one chunk of positions at a time, and in fp32 for a few
positions at most. The forward pass keeps the logits of its last chunk, and three numbers per
token; the backward pass recomputes those of the other chunks, one by one (as in Wijmans et al.
2024, "Cut Your Losses"). It adds to the gradients of the head's weights after each chunk:
`backward` reaches these weights, `torch.autograd.grad` does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from palaestra.models.local.kernels.fused import kernels_for
from palaestra.models.local.network import DecoderNetwork

CHUNK = 1024  # positions whose logits exist at once
FP32_CHUNK = 32  # positions whose logits exist in fp32 at once


def token_logprobs(
    network: DecoderNetwork,
    hidden: Tensor,
    targets: Tensor,
    temperature: float,
    *,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability and the entropy of each target token.

    Args:
        network: provides `logits`.
        hidden: states of the last block that the targets are predicted from, [M, width].
        targets: int64 [M].
        temperature: of the sampler; logits are divided by it.
        entropy_gradient: whether a loss will depend on the entropies.

    Returns:
        log-probabilities [M], with gradient, and entropies [M] in nats, with gradient if asked
        for; both in at least fp32.
    """
    if torch.is_grad_enabled() and not hidden.requires_grad:
        hidden = hidden.detach().requires_grad_()  # for the gradients of the head's own weights
    lp, nats = _TokenLogprobs.apply(hidden, targets, network, temperature, entropy_gradient)  # type: ignore[no-untyped-call]
    return lp, nats


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        network: DecoderNetwork,
        temperature: float,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        count, wide = len(targets), network.wide_dtype
        lp, nats, norm = hidden.new_empty(3, count, dtype=wide)
        ctx.kept = None
        for at in range(0, count, CHUNK):
            own = slice(at, at + CHUNK)
            ctx.kept = None  # before there are others
            ctx.kept = _logits(network, hidden[own])
            lp[own], nats[own], norm[own] = _read(ctx.kept[1].detach(), targets[own], temperature)
        ctx.save_for_backward(hidden, targets, norm, nats)
        ctx.network, ctx.temperature = network, temperature
        ctx.set_materialize_grads(False)
        lp, entropy = lp.clone(), nats.clone()
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return lp, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_lp: Tensor | None, grad_nats: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        hidden, targets, norm, nats = ctx.saved_tensors
        if grad_lp is None and grad_nats is None:
            return None, None, None, None, None
        network, temperature = ctx.network, ctx.temperature
        given = torch.zeros_like(norm) if grad_lp is None else grad_lp.contiguous()
        pull = None if grad_nats is None else grad_nats.contiguous()
        grad = torch.empty_like(hidden)
        for at in reversed(range(0, len(targets), CHUNK)):
            own = slice(at, at + CHUNK)
            kept, ctx.kept = ctx.kept, None
            part, logits = kept or _logits(network, hidden[own])
            inner = logits.detach()  # turns into the gradient of the logits, in place
            _turn(
                *(inner, targets[own], temperature, norm[own], nats[own]),
                *(given[own], None if pull is None else pull[own]),
            )
            logits.backward(inner)
            assert part.grad is not None
            grad[own] = part.grad
            del kept, logits, inner  # before there are others
        return grad, None, None, None, None


def _logits(network: DecoderNetwork, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return a leaf of the hidden states, and the logits that depend on it."""
    part = hidden.detach().requires_grad_()
    with torch.enable_grad():
        return part, network.logits(part)


def _read(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities, entropies and logsumexps of a chunk."""
    kernels = kernels_for(logits)
    if kernels is not None:
        return kernels.token_logprobs(logits.contiguous(), targets, temperature)
    found = []
    for part, chosen in zip(logits.split(FP32_CHUNK), targets.split(FP32_CHUNK), strict=True):
        scores = _wide(part).div_(temperature)
        norm = scores.logsumexp(dim=1)
        logs = scores.sub_(norm.unsqueeze(1))
        lp = logs.gather(1, chosen.unsqueeze(1)).squeeze(1)
        found.append((lp, -(logs.exp().mul_(logs).sum(dim=1)), norm))
    lps, entropies, norms = zip(*found, strict=True)
    return torch.cat(lps), torch.cat(entropies), torch.cat(norms)


def _turn(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    norm: Tensor,
    nats: Tensor,
    given: Tensor,
    pull: Tensor | None,
) -> None:
    """Turn the logits of a chunk into their gradient, in place.

    With p the probabilities, `d lp / d score = [chosen] - p` and
    `d entropy / d score = -p (log p + entropy)`.
    """
    kernels = kernels_for(logits)
    if kernels is not None and logits.is_contiguous():
        kernels.token_logprobs_backward(logits, targets, temperature, norm, nats, given, pull)
        return
    for start in range(0, len(logits), FP32_CHUNK):
        own = slice(start, start + FP32_CHUNK)
        here, g = logits[own], given[own].unsqueeze(1)
        logs = _wide(here).div_(temperature).sub_(norm[own].unsqueeze(1))
        if pull is None:
            found = logs.exp_().mul_(-g)
        else:
            p, weight = logs.exp(), pull[own].unsqueeze(1)
            found = logs.add_(nats[own].unsqueeze(1)).mul_(weight).add_(g).mul_(p).neg_()
        here.copy_(found.scatter_add_(1, targets[own].unsqueeze(1), g).div_(temperature))


def _wide(logits: Tensor) -> Tensor:
    """Return a copy in at least fp32."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
