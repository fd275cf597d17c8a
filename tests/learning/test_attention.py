"""Attention of shared rows: what each token would see if its row ran alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.attention import MOST_QUERIES, Branches, PaddedRows
from palaestra.learning.packing import Trained, merged

HEADS, KV_HEADS, D = 4, 2, 8


def inputs(count, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    shapes = [(count, heads, D) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return [
        torch.randn(s, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes
    ]


def alone(q, k, v, paths):
    """Each row by itself, one head at a time; a token's result is that of its first row."""
    found = {}
    for path in paths:
        for i, entry in enumerate(path):
            if entry in found:
                continue
            past = list(path[: i + 1])
            heads = []
            for head in range(HEADS):
                keys, values = (x[past, head * KV_HEADS // HEADS] for x in (k, v))
                share = (keys @ q[entry, head] / D**0.5).softmax(dim=0)
                heads.append(share @ values)
            found[entry] = torch.stack(heads)
    return torch.stack([found[entry] for entry in range(len(found))])


def paths_of(rows):
    return merged([Trained(row, [False] * len(row)) for row in rows])[2]


rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8)


@settings(max_examples=25)
@given(rows)
def test_rows_that_share_tokens_have_values_and_gradients_of_rows_alone(rows):
    paths = paths_of(rows)
    count = 1 + max(entry for path in paths for entry in path)
    given_back = torch.randn(
        count, HEADS, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    found = []
    for attend in (
        Branches(paths),
        PaddedRows(paths, count, torch.device("cpu")),
        lambda q, k, v: alone(q, k, v, paths),
    ):
        q, k, v = inputs(count)
        out = attend(q, k, v)
        found.append([out, *torch.autograd.grad(out, (q, k, v), given_back)])
    for ours in found[:2]:
        for a, b in zip(ours, found[2], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_long_rows_are_asked_in_parts_of_equal_result():
    long = [list(range(3)) * MOST_QUERIES, [*range(3), *[5] * (MOST_QUERIES + 7)]]
    paths = paths_of(long)
    count = 1 + max(max(path) for path in paths)
    assert len(Branches(paths).branches) == 5
    found = []
    for attend in (Branches(paths), PaddedRows(paths, count, torch.device("cpu"))):
        q, k, v = inputs(count)
        out = attend(q, k, v)
        found.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_numbers_are_as_good_as_torchs_own(dtype):
    paths = paths_of([list(range(60)), [*range(30), *range(70, 110)]])
    exact = inputs(100)
    wanted = alone(*exact, paths)
    errors = []
    for attend in (Branches(paths), PaddedRows(paths, 100, torch.device("cpu"))):
        errors.append(float((attend(*inputs(100, dtype)) - wanted).detach().abs().max()))
    assert errors[0] <= 2 * errors[1] + 1e-6


def test_every_token_asks_once():
    """A row that brings nothing new asks for nothing; no token asks in two rows."""
    paths = paths_of([[1, 2, 3], [1, 2], [1, 2, 3], [1, 4]])
    asking = [entry for b in Branches(paths).branches for entry in range(*b.own)]
    assert sorted(asking) == list(range(4))
