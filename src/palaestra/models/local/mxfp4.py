"""Weights of experts in MXFP4, as gpt-oss is published, become plain numbers when they are read.

32 numbers share a power of two. Each is one of 16 values (a sign, two bits of exponent, one of
fraction); two lie in a byte, the first in the lower half. All of them are exact in bf16.

Source: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 2023.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_HALF = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = (*_HALF, *(-x for x in _HALF))
BIAS = 127  # of the stored exponents
BLOCKS, SCALES = "_blocks", "_scales"


def plain_names(names: Iterable[str], of_experts: Iterable[str]) -> set[str]:
    """Return the names of tensors, one for the two parts of a quantised one of all experts."""
    known = set(names)
    packed = {name for name in of_experts if {name + BLOCKS, name + SCALES} <= known}
    return known - {name + part for name in packed for part in (BLOCKS, SCALES)} | packed


def expert_of(tensors: Mapping[str, Tensor], name: str, expert: int) -> Tensor:
    """Return one expert's entry of a tensor of all experts, dequantised if it is quantised.

    Raises:
        InputError: the tensor is missing.
    """
    if name + BLOCKS not in tensors:
        return tensors[name][expert]
    return dequantised(tensors[name + BLOCKS][expert], tensors[name + SCALES][expert]).T


def dequantised(blocks: Tensor, scales: Tensor) -> Tensor:
    """Return the numbers of blocks, in bf16.

    Args:
        blocks: bytes [rows, blocks of a row, 16].
        scales: bytes [rows, blocks of a row].

    Returns:
        [rows, 32 x blocks of a row].
    """
    values = torch.tensor(VALUES)
    halves = torch.stack([blocks & 15, blocks >> 4], dim=-1)
    numbers = torch.ldexp(values[halves.int()].flatten(-2), scales.int()[..., None] - BIAS)
    return numbers.flatten(-2).bfloat16()
