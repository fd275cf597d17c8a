"""The compiled product of packed matrices, against torch's in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.kernels.weight_packing import native_packing

pytestmark = pytest.mark.skipif(
    native_matmul() is None, reason="no compiler, or a processor without AVX512-BF16"
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 60).map(lambda half: 2 * half),
    st.integers(1, 120),
    st.integers(0, 99),
)
def test_it_is_the_product_rounded_once(rows: int, inputs: int, outputs: int, seed: int) -> None:
    native, packing = native_matmul(), native_packing()
    assert native is not None and packing is not None
    g = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, inputs, generator=g).bfloat16() for n in (rows, outputs))
    wanted = x.double() @ weight.double().T
    found = native.multiply(x, packing.pack([weight]), outputs)
    assert found.shape == (rows, outputs) and found.dtype == torch.bfloat16
    # half a unit in the last of 8 bits, and what fp32 sums lose
    slack = 1e-5 * (x.double().abs() @ weight.double().abs().T)
    assert bool(((found.double() - wanted).abs() <= wanted.abs() / 256 + slack).all())


def test_a_row_does_not_depend_on_the_others() -> None:
    native, packing = native_matmul(), native_packing()
    assert native is not None and packing is not None
    x, weight = torch.randn(37, 64).bfloat16(), torch.randn(100, 64).bfloat16()
    packed = packing.pack([weight])
    whole = native.multiply(x, packed, 100)
    for count in (1, 3, 8, 19):
        assert torch.equal(native.multiply(x[:count], packed, 100), whole[:count])
    assert torch.equal(native.multiply(x[::2], packed, 100), whole[::2])  # rows with gaps


@pytest.mark.parametrize("inputs", [64, 576, 1536])
@pytest.mark.parametrize("rows", [8, 33])
def test_sums_are_rounded_as_torch_rounds_them(rows: int, inputs: int) -> None:
    """Check equality to the bit if torch's order was found; else one in ten thousand differs."""
    native, packing = native_matmul(), native_packing()
    assert native is not None and packing is not None
    g = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, inputs, generator=g).bfloat16() for n in (rows, 960))
    ours, theirs = native.multiply(x, packing.pack([weight]), 960), F.linear(x, weight)
    assert float((ours != theirs).float().mean()) <= (0 if native.in_torchs_order(inputs) else 1e-3)
