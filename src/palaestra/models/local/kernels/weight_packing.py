"""Weights in the layout of the compiled products: `weight_packing.c`, on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled

SOURCE = Path(__file__).with_name("weight_packing.c")
COLUMNS = 48  # outputs of a block, as in the C code

_P, _L = ctypes.c_void_p, ctypes.c_long


class _Part(ctypes.Structure):
    _fields_ = [("weights", _P), ("outputs", _L)]


class _Matrix(ctypes.Structure):
    _fields_ = [
        ("packed", _P),
        ("parts", ctypes.POINTER(_Part)),
        *((name, _L) for name in ("count", "outputs", "inputs", "narrow")),
    ]


class Packing:
    """The compiled functions of `weight_packing.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._fits, self._pack = library.fits_bf16, library.pack
        self._fits.argtypes, self._fits.restype = [_P, _L], _L
        self._pack.argtypes, self._pack.restype = [ctypes.POINTER(_Matrix), _L], None

    def fits_bf16(self, weight: Tensor) -> bool:
        """Return whether fp32 weights are numbers of bf16, so that bf16 holds them exactly."""
        weight = weight.contiguous()
        return bool(self._fits(weight.data_ptr(), weight.numel()))

    def pack(self, parts: Sequence[Tensor]) -> Tensor:
        """Pack one matrix; see `pack_all`."""
        return self.pack_all([parts])[0]

    def pack_all(self, matrices: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Pack matrices [outputs, inputs] in one call, which other threads of Python run beside.

        Args:
            matrices: the rows of each in parts, in order, all in bf16 or all in fp32. They are
                read once, so they may be mapped files.

        Returns:
            the packed matrices in 32-bit words, [blocks, inputs, COLUMNS]; in bf16, words are
            pairs, of which there are (inputs + 1) / 2.
        """
        found = (_Matrix * len(matrices))()
        results, alive = [], []
        for matrix, parts in zip(found, matrices, strict=True):
            parts = [part.contiguous() for part in parts]
            inputs, narrow = parts[0].shape[1], parts[0].dtype is torch.bfloat16
            outputs = sum(map(len, parts))
            rows = -(-inputs // 2) if narrow else inputs
            packed = torch.empty(-(-outputs // COLUMNS), rows, COLUMNS, dtype=torch.int32)
            given = (_Part * len(parts))(*(_Part(part.data_ptr(), len(part)) for part in parts))
            matrix.packed, matrix.parts, matrix.count = packed.data_ptr(), given, len(parts)
            matrix.outputs, matrix.inputs, matrix.narrow = outputs, inputs, narrow
            results.append(packed)
            alive.append(parts)
        self._pack(found, len(found))
        return results


@cache
def native_packing() -> Packing | None:
    """Return the functions; None without a compiler."""
    library = compiled(SOURCE)
    return None if library is None else Packing(library)
