"""Attention of shared rows: what each token would see if its row ran alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.compute.packing import merged
from palaestra.learning.compute.shared_prefix_attention import (
    MOST_QUERIES,
    Branches,
    PaddedRows,
    _gradients,
)
from palaestra.models.local.kernels.causal_attention import native_causal

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
    return merged(rows)[2]


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


SHAPES = [(9, 3, 64), (4, 2, 32), (3, 3, 96), (2, 1, 128)]  # heads, key heads, features of a head


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=70), min_size=1, max_size=6),
    st.sampled_from(SHAPES),
)
def test_the_compiled_backward_pass_is_nearer_to_exact_gradients_than_narrow_products(rows, shape):
    exact, narrow, ours = gradients(paths_of(rows), *shape)
    for name, wanted in exact.items():
        scale = wanted.abs().mean() + 1e-3
        off, allowed = ((x[name].double() - wanted).abs().mean() / scale for x in (ours, narrow))
        assert off <= 1.2 * allowed + 2e-3, name


def test_the_compiled_backward_pass_takes_long_rows_in_parts():
    long = [list(range(3)) * MOST_QUERIES, [*range(3), *[5] * (MOST_QUERIES + 7)]]
    exact, narrow, ours = gradients(paths_of(long), *SHAPES[0])
    for name, wanted in exact.items():
        errors = [float((x[name].double() - wanted).abs().max()) for x in (ours, narrow)]
        assert errors[0] <= 1.2 * errors[1], name


def test_the_compiled_backward_pass_does_not_depend_on_the_number_of_threads():
    paths = paths_of([list(range(60)), [*range(30), *range(70, 110)]])
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(gradients(paths, *SHAPES[0])[2])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in other)


def gradients(paths, heads, kv_heads, d):
    """Of q, k and v: exact ones, those of 16-bit products, and those of the compiled pass."""
    rows, count = Branches(paths), 1 + max(max(path) for path in paths)
    scale = 0.6 * d**-0.5  # not the usual one
    g = torch.Generator().manual_seed(2)
    shapes = [(count, number, d) for number in (heads, heads, kv_heads, kv_heads)]
    given_back, *inputs = (torch.randn(s, generator=g).bfloat16() for s in shapes)
    native = native_causal(inputs[0])
    if native is None:
        pytest.skip("no compiler, or a processor that cannot multiply pairs of 16-bit numbers")
    found = (
        _gradients(given_back.double(), *(x.double() for x in inputs), rows, scale),
        _gradients(given_back, *inputs, rows, scale),
        native.gradients(given_back, *inputs, *rows.numbers(), scale),
    )
    return [dict(zip("qkv", of, strict=True)) for of in found]
