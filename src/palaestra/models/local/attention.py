"""Attention in its general form: windows, caps on scores, and sinks, in tensor operations.

The engine's and the learner's fast paths compute plain causal attention. Where a layer needs more,
they bring the keys and values of each sequence together and use `general_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Scores(NamedTuple):
    """How the scores of a layer become attention weights."""

    scale: float  # of queries times keys
    window: int | None = None  # tokens that a token attends to, itself included; None: all
    softcap: float | None = None
    sinks: Tensor | None = None  # score of attending to nothing, [heads]

    def plain(self, reach: int) -> bool:
        """Return whether plain causal attention over at most `reach` tokens is the same."""
        narrow = self.window is not None and self.window < reach
        return not narrow and self.softcap is None and self.sinks is None


class Attend(Protocol):
    """Attention across positions, for a network that knows nothing of sequences."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        """Return [N, heads, d] for q [N, heads, d], k and v [N, kv_heads, d]."""


class AttendAlongRows:
    """An `Attend` within the rows of a flat batch."""

    rows: Sequence[Sequence[int]]
    """The entries of each row, numbered as the rows reach them: its own ones come last."""


def general_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scores: Scores) -> Tensor:
    """Attend within each of B sequences.

    Args:
        q: queries, [B, n, heads, d].
        k: keys, [B, m, kv_heads, d].
        v: values, likewise.
        seen: whether a query may attend to a key, bool [B, n, m].
        scores: how; its window is part of `seen`.

    Returns:
        [B, n, heads, d]; undefined for a query that sees nothing, without sinks.
    """
    b, n, heads, d = q.shape
    share = heads // k.shape[2]
    # query heads that share a key head are further queries of that head
    folded = q.view(b, n, -1, share, d).permute(0, 2, 3, 1, 4).flatten(2, 3)
    found = torch.matmul(folded, k.permute(0, 2, 3, 1)).mul_(scores.scale)
    found = found.unflatten(2, (share, n)).to(torch.promote_types(q.dtype, torch.float32))
    if scores.softcap is not None:
        found = torch.tanh(found / scores.softcap) * scores.softcap
    found = found.masked_fill(~seen[:, None, None], -torch.inf)
    if scores.sinks is not None:
        sinks = scores.sinks.to(found.dtype).view(-1, share, 1, 1).expand(b, -1, -1, n, 1)
        found = torch.cat([found, sinks], dim=-1)
    weights = found.softmax(dim=-1)[..., : k.shape[1]].to(v.dtype)
    mixed = torch.matmul(weights.flatten(2, 3), v.transpose(1, 2))
    return mixed.unflatten(2, (share, n)).permute(0, 3, 1, 2, 4).reshape(b, n, heads, d)


def causal(starts: Tensor, firsts: Tensor, n: int, m: int, window: int | None) -> Tensor:
    """Return what each query sees, bool [B, n, m].

    Args:
        starts: position of the first of n successive queries of each sequence, [B].
        firsts: position of the first of m successive keys, [B].
        n: queries of a sequence.
        m: keys of a sequence.
        window: see `Scores`.
    """
    device = starts.device
    query = (starts[:, None] + torch.arange(n, device=device)).unsqueeze(2)
    key = (firsts[:, None] + torch.arange(m, device=device)).unsqueeze(1)
    seen = key <= query
    return seen if window is None else seen & (key > query - window)
