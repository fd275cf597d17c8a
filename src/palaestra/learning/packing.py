"""Rows to flat tensors: no padding and no shared prefix is run twice.

Rows of a micro-batch that begin alike (the system prompt, the task of a group, the
first turns of rollouts that acted alike, branches of one episode) share those
tokens: each distinct prefix is one entry of the flat batch, so embeddings, matrix
products and their gradients are computed once for it. Attention alone works row by
row, on padded views gathered from the flat batch; being causal, it never looks at
padding, and what a token attends to is exactly its own row's past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.models.cache import common_prefix


@dataclass(frozen=True, slots=True)
class Trained:
    """One row as the learner sees it; all lists have the row's length."""

    tokens: list[int]
    mask: list[bool]
    lp_old: list[float]
    advantage: list[float]
    weight: list[float]  # of each token's loss; zero where mask is false


class Micro:
    """A micro-batch: N distinct tokens, M trained ones (a token may be trained by several rows)."""

    def __init__(self, rows: Sequence[Trained], device: torch.device) -> None:
        entries: dict[tuple[int, int], int] = {}  # (entry before, token) -> entry
        tokens: list[int] = []
        positions: list[int] = []
        paths: list[list[int]] = []
        for row in rows:
            path: list[int] = []
            before = -1
            for position, token in enumerate(row.tokens):
                entry = entries.setdefault((before, token), len(tokens))
                if entry == len(tokens):
                    tokens.append(token)
                    positions.append(position)
                path.append(entry)
                before = entry
            paths.append(path)
        trained = [
            (path[i - 1], row, i)  # a token is predicted from the one before it
            for path, row in zip(paths, rows, strict=True)
            for i, on in enumerate(row.mask)
            if on
        ]
        self.tokens = torch.tensor(tokens, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.attend = RowAttention(paths, len(tokens), device)
        self.predictors = torch.tensor([at for at, _, _ in trained], device=device)
        self.targets = torch.tensor([row.tokens[i] for _, row, i in trained], device=device)
        self.lp_old = torch.tensor([row.lp_old[i] for _, row, i in trained], device=device)
        self.advantage = torch.tensor([row.advantage[i] for _, row, i in trained], device=device)
        self.weight = torch.tensor([row.weight[i] for _, row, i in trained], device=device)


class RowAttention:
    """Causal attention along each row of a flat batch (an `Attend`)."""

    def __init__(self, paths: Sequence[Sequence[int]], count: int, device: torch.device) -> None:
        longest = max(len(path) for path in paths)
        gather = [entry for path in paths for entry in (*path, *[0] * (longest - len(path)))]
        home = [-1] * count  # where in the padded rows each token's own result stands
        for row, path in enumerate(paths):
            for position, entry in enumerate(path):
                if home[entry] < 0:
                    home[entry] = row * longest + position
        self.shape = (len(paths), longest)
        self.gather = torch.tensor(gather, device=device)
        self.home = torch.tensor(home, device=device)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        share = q.shape[1] // k.shape[1]
        q, k, v = (self._rows(x) for x in (q, k, v))
        if share > 1:
            k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).flatten(0, 1).index_select(0, self.home)

    def _rows(self, x: Tensor) -> Tensor:
        """[N, heads, d] to padded rows [rows, heads, longest, d]."""
        # index_select, not x[...]: its backward pass is 20 times faster on CPUs
        return x.index_select(0, self.gather).view(*self.shape, *x.shape[1:]).transpose(1, 2)


def micro_batches(rows: Sequence[Trained], most_tokens: int) -> list[list[Trained]]:
    """Whole rows grouped so that each group holds at most `most_tokens` distinct tokens.

    A single longer row travels alone. Rows that begin alike travel together; the
    order has no influence on the gradient.
    """
    groups: list[list[Trained]] = []
    size = 0
    for row in sorted(rows, key=lambda row: row.tokens):
        known = common_prefix(groups[-1][-1].tokens, row.tokens) if groups else 0
        if not groups or size + len(row.tokens) - known > most_tokens:
            groups.append([])
            size = known = 0
        groups[-1].append(row)
        size += len(row.tokens) - known
    return groups
