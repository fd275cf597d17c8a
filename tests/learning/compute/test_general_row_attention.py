"""General attention of shared rows: windows, caps and sinks as if each row ran alone."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.learning.compute.packing import merged
from palaestra.learning.compute.shared_prefix_attention import MOST_QUERIES, RowAttention
from palaestra.models.local.attention import Scores

HEADS, KV_HEADS, D = 4, 2, 8


def inputs(count: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    shapes = [(count, heads, D) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    found = [torch.randn(shape, generator=g, dtype=torch.float64) for shape in [*shapes, (HEADS,)]]
    return [x.requires_grad_() for x in found]


def alone(q: Tensor, k: Tensor, v: Tensor, paths: list[list[int]], scores: Scores) -> Tensor:
    """Return each token's result in its first row, one head at a time."""
    found: dict[int, Tensor] = {}
    for path in paths:
        for number, entry in enumerate(path):
            first = 0 if scores.window is None else max(0, number + 1 - scores.window)
            past = path[first : number + 1]
            heads = []
            for head in range(HEADS):
                keys, values = (x[past, head * KV_HEADS // HEADS] for x in (k, v))
                points = keys @ q[entry, head] * scores.scale
                if scores.softcap is not None:
                    points = scores.softcap * (points / scores.softcap).tanh()
                total = points.exp().sum()
                if scores.sinks is not None:
                    total = total + scores.sinks[head].exp()
                heads.append(points.exp() / total @ values)
            found.setdefault(entry, torch.stack(heads))
    return torch.stack([found[entry] for entry in range(len(found))])


def check(rows: list[list[int]], window: int | None, cap: float | None, sinking: bool) -> None:
    paths = merged(rows)[2]
    count = 1 + max(entry for path in paths for entry in path)
    g = torch.Generator().manual_seed(1)
    given_back = torch.randn(count, HEADS, D, generator=g, dtype=torch.float64)
    results = []
    for packed in (True, False):
        q, k, v, sinks = inputs(count)
        scores = Scores(0.5, window, cap, sinks if sinking else None)
        if packed:
            out = RowAttention(paths, count, q.device)(0, q, k, v, scores)
        else:
            out = alone(q, k, v, paths, scores)
        leaves = [q, k, v, *([sinks] if sinking else [])]
        results.append([out, *torch.autograd.grad(out, leaves, given_back)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8),
    st.none() | st.integers(1, 14),
    st.none() | st.just(1.5),
    st.booleans(),
)
def test_rows_that_share_tokens_have_values_and_gradients_of_rows_alone(
    rows: list[list[int]], window: int | None, cap: float | None, sinking: bool
) -> None:
    check(rows, window, cap, sinking)


def test_long_rows_are_asked_in_parts_of_equal_result() -> None:
    check([list(range(5)) * (MOST_QUERIES // 4), [*range(5), *[7] * 20]], 40, None, True)
