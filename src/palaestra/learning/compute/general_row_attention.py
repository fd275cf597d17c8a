"""General attention along rows that share their beginnings: windows, caps on scores, sinks.

Each branch of the flat batch is computed by itself, in tensor operations. The backward pass
computes it again, so that nothing quadratic in a row's length is kept, and accumulates the
gradients of shared keys and values in at least fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from palaestra.models.local.attention import Scores, causal, general_attention

if TYPE_CHECKING:
    from palaestra.learning.compute.shared_prefix_attention import Branch, Span


def attend_along(
    q: Tensor, k: Tensor, v: Tensor, branches: Sequence[Branch], scores: Scores
) -> Tensor:
    """Attend each branch's own tokens to its row: q [N, heads, d], k and v [N, kv_heads, d]."""
    out: Tensor = _Along.apply(q, k, v, scores.sinks, branches, scores)  # type: ignore[no-untyped-call]
    return out


class _Along(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        branches: Sequence[Branch],
        scores: Scores,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, sinks)
        ctx.branches, ctx.scores = branches, scores._replace(sinks=None)
        out = torch.empty_like(q)
        for branch in branches:
            spans = _within(branch, scores.window)
            own, near, far = slice(*branch.own), _gathered(k, spans), _gathered(v, spans)
            out[own] = _attended(q[own], near, far, scores)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sinks = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        grad_q = torch.empty_like(q)
        grad_k, grad_v = (torch.zeros_like(x, dtype=wide) for x in (k, v))
        grad_sinks = None if sinks is None else torch.zeros_like(sinks, dtype=wide)
        for branch in ctx.branches:
            own, spans = slice(*branch.own), _within(branch, ctx.scores.window)
            near, far = _gathered(k, spans), _gathered(v, spans)
            inputs = [x.detach().requires_grad_() for x in (q[own], near, far)]
            leaf = None if sinks is None else sinks.detach().requires_grad_()
            with torch.enable_grad():
                out = _attended(inputs[0], inputs[1], inputs[2], ctx.scores._replace(sinks=leaf))
            found = torch.autograd.grad(out, inputs if leaf is None else [*inputs, leaf], grad[own])
            grad_q[own] = found[0]
            _scatter(grad_k, found[1], spans)
            _scatter(grad_v, found[2], spans)
            if grad_sinks is not None:
                grad_sinks += found[3]
        given = None if sinks is None or grad_sinks is None else grad_sinks.to(sinks.dtype)
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), given, None, None


def _attended(q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """Attend q [n, heads, d] to the last keys and values of a row, [m, kv_heads, d]."""
    n, m = len(q), len(k)
    first = torch.zeros(1, dtype=torch.int64, device=q.device)
    seen = causal(first + m - n, first, n, m, scores.window)
    return general_attention(q[None], k[None], v[None], seen, scores)[0]


def _within(branch: Branch, window: int | None) -> list[Span]:
    """Return the end of a branch's path that its own tokens can see."""
    left = None if window is None else branch.count + window - 1
    found: list[Span] = []
    for start, stop in reversed(branch.path):
        if left is not None:
            if left <= 0:
                break
            start = max(start, stop - left)
            left -= stop - start
        found.append((start, stop))
    return found[::-1]


def _gathered(x: Tensor, spans: Sequence[Span]) -> Tensor:
    """Gather keys or values along a path."""
    return torch.cat([x[start:stop] for start, stop in spans])


def _scatter(total: Tensor, x: Tensor, spans: Sequence[Span]) -> None:
    """Scatter the reverse of `_gathered`, added to what other branches found."""
    at = 0
    for start, stop in spans:
        total[start:stop] += x[at : at + stop - start]
        at += stop - start
