"""Rounding to bf16 keeps what it can hold, chooses a neighbour, and loses no change on average."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.models.local.rounding import PERIOD, round_into


def rounded(wide: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    narrow = torch.empty_like(wide, dtype=dtype)
    round_into(narrow, wide)
    return narrow


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.05


@given(
    st.lists(
        st.floats(-(2.0**126), 2.0**126, allow_subnormal=False, width=32), min_size=1, max_size=50
    )
)
@settings(deadline=None)
def test_each_weight_becomes_one_of_its_two_neighbours(numbers: list[float]) -> None:
    wide = torch.tensor(numbers)
    found = rounded(wide)
    toward_zero = (wide.view(torch.int32) & -(1 << 16)).view(torch.float32)
    away = ((wide.view(torch.int32) & -(1 << 16)) + (1 << 16)).view(torch.float32)
    assert ((found.float() == toward_zero) | (found.float() == away)).all()
    assert (found.float() == wide)[toward_zero == wide].all()  # bf16 can hold it


def test_what_bf16_can_hold_stays() -> None:
    wide = drawn(3, PERIOD).bfloat16().float()
    assert torch.equal(rounded(wide).float(), wide)
    assert rounded(torch.tensor([0.0, -0.0, torch.inf, -torch.inf])).tolist() == [
        0.0,
        0.0,
        torch.inf,
        -torch.inf,
    ]


@pytest.mark.parametrize("change", [1e-5, -1e-5])
def test_small_changes_stay_on_average(change: float) -> None:
    start = drawn(1024, 1024).bfloat16().float()
    kept = (rounded(start + change).double() - start).mean()
    lost = ((start + change).bfloat16().double() - start).mean()
    assert kept == pytest.approx(change, rel=0.05)
    assert abs(lost) < abs(change) / 2


def test_equal_weights_are_rounded_alike_in_any_layout() -> None:
    wide = drawn(300, 1100)
    assert torch.equal(rounded(wide), rounded(wide.clone()))
    aside = torch.empty(1100, 300, dtype=torch.bfloat16).T
    round_into(aside, wide)
    assert torch.equal(aside, rounded(wide))
    assert torch.equal(rounded(wide.T.contiguous().T), rounded(wide))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_formats_are_converted_as_torch_does(dtype: torch.dtype) -> None:
    wide = drawn(100)
    assert torch.equal(rounded(wide, dtype), wide.to(dtype))
