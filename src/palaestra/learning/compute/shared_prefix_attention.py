"""Causal attention along rows that share their beginnings.

A flat batch holds each distinct prefix once. A row is a path through the batch: first the
tokens that an earlier row introduced, then its own, which are contiguous. A token attends to
exactly the past of its own row, and only own tokens are queries: the result for a shared token
is computed once, in the row that introduced it.

On CPUs plain batched products beat torch's fused kernel (measured in bf16, two cores, see
benchmarks/attention.py). Their backward pass is written by hand: it recomputes the attention
weights from queries and keys (as in Dao et al. 2022), so that it keeps nothing quadratic in a
row's length, and accumulates the gradients of shared keys and values in fp32. Where a compiled
kernel exists (see `causal_attention.c`), it skips what no token attends to. On other devices
rows are padded for torch's fused kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from palaestra.learning.compute.general_row_attention import attend_along
from palaestra.models.local.attention import AttendAlongRows, Scores
from palaestra.models.local.kernels.causal_attention import native_causal
from palaestra.models.local.kernels.fused import processor_kernels

Span = tuple[int, int]  # entries of the flat batch, the second exclusive

MOST_QUERIES = 256  # queries at once: bounds the part of the attention weights that exists
PADDING = 1.5  # longest row over shortest among those padded together; short ones excepted
SHORT = 64  # tokens


class RowAttention(AttendAlongRows):
    """Causal attention along each row of a flat batch (an `Attend`)."""

    def __init__(self, paths: Sequence[Sequence[int]], count: int, device: torch.device) -> None:
        """Prepare the attention of one batch.

        Args:
            paths: the entries of each row, in order. Entries are numbered as the paths reach
                them, so those that a path is the first to hold are contiguous at its end.
            count: entries in all.
            device: of the batch.
        """
        self.attend = PaddedRows(paths, count, device) if device.type == "cuda" else Branches(paths)
        self.rows, self._reach = paths, max(map(len, paths), default=0)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        if scores.plain(self._reach):
            return self.attend(q, k, v, scores.scale)
        return attend_along(q, k, v, self._branches, scores)

    @cached_property
    def _branches(self) -> Sequence[Branch]:
        found = self.attend if isinstance(self.attend, Branches) else Branches(self.rows)
        return found.branches


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """Apply torch's own attention within rows: q [R, L, heads, d], k and v [R, L, kv_heads, d].

    `scale` is of queries times keys; None: d^-1/2, here and below.
    """
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    fused = q.is_cuda and q.dtype is not torch.float32  # kernels that share heads themselves
    if share > 1 and not fused:
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    out = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=share > 1 and fused
    )
    return out.transpose(1, 2)


class PaddedRows:
    """Rows gathered from the flat batch and padded; causality hides the padding from them."""

    def __init__(self, paths: Sequence[Sequence[int]], count: int, device: torch.device) -> None:
        ordered = sorted(paths, key=len)
        home = np.zeros(count, np.int64)  # position of a token's result in the padded rows
        self.buckets: list[tuple[Tensor, tuple[int, ...]]] = []
        offset = at = 0
        while at < len(ordered):
            most = PADDING * len(ordered[at]) + SHORT
            bucket = [path for path in ordered[at:] if len(path) <= most]
            at += len(bucket)
            longest = len(bucket[-1])
            gather = np.zeros((len(bucket), longest), np.int64)
            for row, path in zip(gather, bucket, strict=True):
                row[: len(path)] = path
                home[path] = offset + np.arange(len(path))
                offset += longest
            entries = torch.from_numpy(gather).flatten().to(device)
            self.buckets.append((entries, gather.shape))
        self.home = torch.from_numpy(home).to(device)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        # accumulates the gradients of what rows share
        wide = torch.promote_types(k.dtype, torch.float32)
        k, v = k.to(wide), v.to(wide)
        parts = []
        for gather, shape in self.buckets:
            rows, near, far = (
                x.index_select(0, gather).view(*shape, *x.shape[1:]).to(q.dtype) for x in (q, k, v)
            )
            parts.append(causal_attention(rows, near, far, scale).flatten(0, 1))
        return torch.cat(parts).index_select(0, self.home)


@dataclass(frozen=True, slots=True)
class Branch:
    """Contiguous own tokens of a row, and the row up to the last of them."""

    own: Span
    path: tuple[Span, ...]  # ends with the own tokens

    @property
    def count(self) -> int:
        """Own tokens."""
        return self.own[1] - self.own[0]


class Branches:
    """Attention of each row's own tokens to the row."""

    def __init__(self, paths: Sequence[Sequence[int]]) -> None:
        self.branches: list[Branch] = []  # their own tokens are contiguous
        self._order: tuple[Tensor, Tensor] | None = None
        self._numbers: tuple[Tensor, Tensor] | None = None
        known = 0  # entries seen so far
        for path in paths:
            new = max(0, path[-1] + 1 - known)
            parts = -(-new // MOST_QUERIES)
            for part in range(parts):
                start, stop = (known + new * i // parts for i in (part, part + 1))
                reached = path[: len(path) - new + stop - known]
                self.branches.append(Branch((start, stop), _spans(reached)))
            known += new

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        out: Tensor = _BranchAttention.apply(q, k, v, self, scale)  # type: ignore[no-untyped-call]
        return out

    def order(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return where in the batch each folded query is, and where each query went."""
        if self._order is None:
            order = torch.cat([_folded(branch, q.shape[1], k.shape[1]) for branch in self.branches])
            self._order = order.to(q.device), order.argsort().to(q.device)
        return self._order

    def numbers(self) -> tuple[Tensor, Tensor]:
        """Return the branches and their paths, as compiled code reads them (see `NativeCausal`)."""
        if self._numbers is None:
            rows: list[list[int]] = []
            entries: list[int] = []
            for branch in self.branches:
                path = [entry for start, stop in branch.path for entry in range(start, stop)]
                rows.append([branch.own[0], branch.count, len(entries), len(path)])
                entries += path
            self._numbers = torch.tensor(rows), torch.tensor(entries, dtype=torch.int32)
        return self._numbers


def _spans(path: Sequence[int]) -> tuple[Span, ...]:
    """Return the same entries as runs of neighbours."""
    found: list[Span] = []
    start = 0
    for i in range(1, len(path) + 1):
        if i == len(path) or path[i] != path[i - 1] + 1:
            found.append((path[start], path[i - 1] + 1))
            start = i
    return tuple(found)


def _folded(branch: Branch, heads: int, kv_heads: int) -> Tensor:
    """Return the positions of a branch's queries [N x heads]: by shared key head, then token."""
    own = torch.arange(*branch.own)
    return (
        (own + torch.zeros(heads, 1, dtype=torch.int64))
        .mul_(heads)
        .add_(torch.arange(heads).unsqueeze(1))
        .flatten()
    )


class _BranchAttention(torch.autograd.Function):
    """q [N, heads, d], k and v [N, kv_heads, d] -> [N, heads, d].

    Queries are ordered branch by branch and, within a branch, head by head, so that those
    that share keys are the rows of one matrix.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rows: Branches, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.rows, ctx.scale = rows, scale
        asked, keys, values, back = _folds(q, k, v, rows)
        mixed, future, native = torch.empty_like(asked), _future(q), native_causal(q)
        for branch in rows.branches:
            own = _rows(branch, q.shape[1])
            near, far = _gathered(keys, branch), _gathered(values, branch)
            folded = asked[own].view(len(near), -1, q.shape[2])
            weights = _weights(folded, near, branch, future, scale)
            found = mixed[own].view(len(near), -1, q.shape[2])
            if native is not None:
                native.weigh(weights, far, found, branch.count)
            else:
                torch.bmm(weights, far, out=found)
        return mixed.index_select(0, back).view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        native = native_causal(q)
        if native is not None:
            branches, entries = ctx.rows.numbers()
            found = native.gradients(grad, q, k, v, branches, entries, ctx.scale)
            return *found, None, None
        return *_gradients(grad, q, k, v, ctx.rows, ctx.scale), None, None


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Branches, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, with tensor operations."""
    heads, d = q.shape[1:]
    wide = torch.promote_types(q.dtype, torch.float32)
    asked, keys, values, back = _folds(q, k, v, rows)
    given = grad.reshape(-1, d).index_select(0, rows.order(q, k)[0])
    grad_asked = torch.empty_like(asked)
    grad_keys, grad_values = (
        torch.zeros(x.shape, dtype=wide, device=x.device) for x in (keys, values)
    )
    future, nothing = _future(asked), asked.new_zeros(1, 1, 1)
    for branch in rows.branches:
        own = _rows(branch, heads)
        near, far = _gathered(keys, branch), _gathered(values, branch)
        asks, gives, found = (x[own].view(len(near), -1, d) for x in (asked, given, grad_asked))
        weights = _weights(asks, near, branch, future, scale)
        _scatter(grad_values, torch.bmm(weights.mT, gives), branch)
        # of the weights, then of the scores: the softmax's own backward kernel
        scores = torch._softmax_backward_data(torch.bmm(gives, far.mT), weights, -1, weights.dtype)
        torch.baddbmm(nothing, scores, near, beta=0, alpha=scale, out=found)
        inner = torch.baddbmm(nothing, scores.mT, asks, beta=0, alpha=scale)
        _scatter(grad_keys, inner, branch)
    grad_k, grad_v = (x.transpose(0, 1).to(q.dtype) for x in (grad_keys, grad_values))
    return grad_asked.index_select(0, back).view(q.shape), grad_k, grad_v


def _folds(
    q: Tensor, k: Tensor, v: Tensor, rows: Branches
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries [N heads, d] by branch, keys and values [kv_heads, N, d], and the inverse."""
    order, back = rows.order(q, k)
    asked = q.reshape(-1, q.shape[2]).index_select(0, order)
    return asked, k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous(), back


def _rows(branch: Branch, heads: int) -> slice:
    """Return a branch's part of the queries."""
    return slice(branch.own[0] * heads, branch.own[1] * heads)


def _future(like: Tensor) -> Tensor:
    """Return a mask of own tokens, true where a key lies after the query."""
    return like.new_ones(MOST_QUERIES, MOST_QUERIES, dtype=torch.bool).triu(1)


def _gathered(x: Tensor, branch: Branch) -> Tensor:
    """Gather keys or values [kv_heads, N, d] along the branch's path: [kv_heads, length, d]."""
    return torch.cat([x[:, start:stop] for start, stop in branch.path], dim=1)


def _scatter(total: Tensor, x: Tensor, branch: Branch) -> None:
    """Scatter the reverse of `_gathered`, added to what other branches found."""
    at = 0
    for start, stop in branch.path:
        total[:, start:stop] += x[:, at : at + stop - start]
        at += stop - start


def _weights(asked: Tensor, keys: Tensor, branch: Branch, future: Tensor, scale: float) -> Tensor:
    """Return attention weights [kv_heads, share x count, length] of folded queries."""
    count = branch.count
    scores = torch.baddbmm(asked.new_zeros(1, 1, 1), asked, keys.mT, beta=0, alpha=scale)
    kernels = processor_kernels(scores)
    if kernels is not None:
        kernels.causal_softmax(scores, count)
        return scores
    own = scores.unflatten(1, (-1, count))[..., -count:]
    own.masked_fill_(future[:count, :count], float("-inf"))
    return scores.softmax(dim=-1)
