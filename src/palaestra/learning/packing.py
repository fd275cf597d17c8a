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


ROWS_AT_ONCE = 4  # rows attended together; few, so that they are of nearly equal length


class RowAttention:
    """Causal attention along each row of a flat batch (an `Attend`)."""

    def __init__(self, paths: Sequence[Sequence[int]], count: int, device: torch.device) -> None:
        ordered = sorted(paths, key=len)
        home = [-1] * count  # where in the padded rows each token's own result stands
        self.buckets: list[tuple[Tensor, tuple[int, int]]] = []
        offset = 0
        for at in range(0, len(ordered), ROWS_AT_ONCE):
            bucket = ordered[at : at + ROWS_AT_ONCE]
            longest = len(bucket[-1])
            gather: list[int] = []
            for path in bucket:
                for position, entry in enumerate(path):
                    if home[entry] < 0:
                        home[entry] = offset + position
                gather += [*path, *[0] * (longest - len(path))]
                offset += longest
            self.buckets.append((torch.tensor(gather, device=device), (len(bucket), longest)))
        self.home = torch.tensor(home, device=device)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for gather, shape in self.buckets:
            # index_select, not x[...]: its backward pass is 20 times faster on CPUs
            rows = [x.index_select(0, gather).view(*shape, *x.shape[1:]) for x in (q, k, v)]
            parts.append(causal_attention(*rows).flatten(0, 1))
        return torch.cat(parts).index_select(0, self.home)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention within rows: q [R, L, heads, d], k and v [R, L, kv_heads, d].

    On CPUs plain batched products: for rows of a few hundred tokens, torch's fused kernel
    takes twice as long forward and three times backward (measured in bf16, two cores).
    """
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if share > 1:
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    rows, heads, length, d = q.shape
    future = q.new_full((length, length), float("-inf")).triu(1)
    q, k, v = (x.reshape(rows * heads, length, d) for x in (q, k, v))
    scores = torch.baddbmm(future.expand(rows * heads, -1, -1), q, k.mT, alpha=d**-0.5)
    out = torch.bmm(scores.softmax(dim=-1), v)
    return out.view(rows, heads, length, d).transpose(1, 2)


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
