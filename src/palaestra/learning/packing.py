"""Rows to flat tensors: no padding reaches a matrix product.

A micro-batch is a flat list of tokens of whole rows. Attention pads the rows to
the longest of them (rows of similar length travel together); being causal, it
never looks at padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Trained:
    """One row as the learner sees it; all lists have the row's length."""

    tokens: list[int]
    mask: list[bool]
    lp_old: list[float]
    advantage: list[float]
    weight: list[float]  # of each token's loss; zero where mask is false


class Micro:
    """A micro-batch of rows, flat. N tokens, M of them trained."""

    def __init__(self, rows: Sequence[Trained], device: torch.device) -> None:
        counts = [len(row.tokens) for row in rows]
        starts = [sum(counts[:i]) for i in range(len(counts))]
        self.tokens = torch.tensor([t for row in rows for t in row.tokens], device=device)
        self.attend = PackedAttention(counts, device)
        trained = [
            (start + i, row, i)
            for start, row in zip(starts, rows, strict=True)
            for i, on in enumerate(row.mask)
            if on
        ]
        index = torch.tensor([at for at, _, _ in trained], dtype=torch.long, device=device)
        self.predictors = index - 1  # a token is predicted from the one before it
        self.targets = self.tokens[index]
        self.lp_old = torch.tensor([row.lp_old[i] for _, row, i in trained], device=device)
        self.advantage = torch.tensor([row.advantage[i] for _, row, i in trained], device=device)
        self.weight = torch.tensor([row.weight[i] for _, row, i in trained], device=device)


class PackedAttention:
    """Causal attention within each row of a flat batch (an `Attend`)."""

    def __init__(self, counts: Sequence[int], device: torch.device) -> None:
        count = torch.tensor(counts, device=device)
        self.rows, self.longest = len(counts), max(counts)
        self.row = torch.repeat_interleave(torch.arange(len(counts), device=device), count)
        self.positions = (
            torch.arange(len(self.row), device=device) - (count.cumsum(0) - count)[self.row]
        )
        self.dense = all(n == self.longest for n in counts)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        share = q.shape[1] // k.shape[1]
        q, k, v = (self._pad(x).transpose(1, 2) for x in (q, k, v))
        if share > 1:
            k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return out.reshape(-1, *out.shape[2:]) if self.dense else out[self.row, self.positions]

    def _pad(self, x: Tensor) -> Tensor:
        """[N, heads, d] to [rows, longest, heads, d]."""
        if self.dense:
            return x.view(self.rows, self.longest, *x.shape[1:])
        padded = x.new_zeros(self.rows, self.longest, *x.shape[1:])
        return padded.index_put((self.row, self.positions), x)


def micro_batches(rows: Sequence[Trained], most_tokens: int) -> list[list[Trained]]:
    """Whole rows grouped so that each group holds at most `most_tokens` tokens.

    A single longer row travels alone. Rows are ordered by length, so that attention
    pads little; the order has no influence on the gradient.
    """
    groups: list[list[Trained]] = []
    size = 0
    for row in sorted(rows, key=lambda row: len(row.tokens)):
        if not groups or size + len(row.tokens) > most_tokens:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += len(row.tokens)
    return groups
