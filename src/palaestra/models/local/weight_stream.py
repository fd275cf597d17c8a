"""Weights as one stretch of bytes, to be sent to other processes without files.

The tensors of a network lie one after the other, each at a multiple of `ALIGNMENT`, so that the
receiver reads them where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 64  # bytes

Layout = dict[str, tuple[str, tuple[int, ...]]]
"""The type and shape of each tensor by its name, in their order."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A copy of a network's weights at one version."""

    version: int
    layout: Layout
    data: memoryview


def copy_weights(tensors: Mapping[str, Tensor], version: int) -> Weights:
    """Return a copy of tensors, which may change afterwards."""
    layout = {
        name: (str(one.dtype).removeprefix("torch."), tuple(one.shape))
        for name, one in tensors.items()
    }
    data = torch.empty(size_of(layout), dtype=torch.uint8)
    for name, place in tensors_in(data, layout).items():
        place.copy_(tensors[name].detach())
    return Weights(version, layout, data.numpy().data)


class WeightBuffer:
    """Memory into which weights are received; that of earlier ones is used again."""

    def __init__(self) -> None:
        self._data = torch.empty(0, dtype=torch.uint8)

    def memory(self, layout: Layout) -> memoryview:
        """Return where the bytes of weights go; earlier ones are lost."""
        self._data.resize_(size_of(layout))
        return self._data.numpy().data

    def tensors(self, layout: Layout) -> dict[str, Tensor]:
        """Return the weights that were received."""
        return tensors_in(self._data, layout)


def size_of(layout: Layout) -> int:
    """Return how many bytes the tensors take."""
    return sum(-(-_bytes(*part) // ALIGNMENT) * ALIGNMENT for part in layout.values())


def tensors_in(data: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return the tensors that lie in a stretch of bytes; they share its memory."""
    found, begin = {}, 0
    for name, (dtype, shape) in layout.items():
        size = _bytes(dtype, shape)
        found[name] = data[begin : begin + size].view(getattr(torch, dtype)).view(shape)
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    found: torch.dtype = getattr(torch, dtype)
    return torch.Size(shape).numel() * found.itemsize
