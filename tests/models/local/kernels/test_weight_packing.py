"""Packed matrices have the layout of `packed_layout.h`, however many are packed at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.models.local.kernels.weight_packing import COLUMNS, native_packing

pytestmark = pytest.mark.skipif(native_packing() is None, reason="no C compiler with OpenMP")

MATRICES = st.lists(
    st.tuples(st.lists(st.integers(1, 120), min_size=1, max_size=3), st.integers(1, 40)),
    min_size=1,
    max_size=5,
)


def laid_out(weight: Tensor) -> Tensor:
    """Return a matrix in the layout of `packed_layout.h`, by torch alone."""
    if weight.dtype is torch.bfloat16:
        weight = F.pad(weight.view(torch.int16), (0, weight.shape[1] % 2)).view(torch.int32)
    else:
        weight = weight.view(torch.int32)
    weight = F.pad(weight, (0, 0, 0, -len(weight) % COLUMNS))
    return weight.view(-1, COLUMNS, weight.shape[1]).transpose(1, 2).contiguous()


@settings(max_examples=60, deadline=None)
@given(MATRICES, st.sampled_from([torch.bfloat16, torch.float32]), st.integers(0, 99))
def test_matrices_that_are_packed_at_once_have_the_layout(
    sizes: list[tuple[list[int], int]], dtype: torch.dtype, seed: int
) -> None:
    packing, g = native_packing(), torch.Generator().manual_seed(seed)
    assert packing is not None
    whole = [torch.randn(sum(rows), inputs, generator=g).to(dtype) for rows, inputs in sizes]
    parts = [matrix.split(rows) for matrix, (rows, _) in zip(whole, sizes, strict=True)]
    for packed, matrix in zip(packing.pack_all(parts), whole, strict=True):
        assert torch.equal(packed, laid_out(matrix))
