"""Matrix products with packed bf16 weights: the compiled functions of `matmul.c`, on tensors.

torch's bf16 products reach half of a processor's rate when few tokens meet a large matrix, as in
decoding. Sums are taken in the same order, so results are the same.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from torch import Tensor

from palaestra.models.native import compiled

SOURCE = Path(__file__).with_name("matmul.c")

_P, _L = ctypes.c_void_p, ctypes.c_long


class NativeMatmul:
    """See `matmul.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.columns.restype = _L
        self._columns = library.columns()
        self._pack, self._multiply = library.pack, library.multiply
        self._pack.argtypes, self._pack.restype = [_P, _P, _L, _L], None
        self._multiply.argtypes, self._multiply.restype = [_P, _P, _P, _L, _L, _L], None

    def pack(self, weight: Tensor) -> Tensor:
        """A matrix [outputs, inputs] of bf16, inputs even, in the order that `multiply` reads."""
        outputs, inputs = weight.shape
        blocks = -(-outputs // self._columns)
        packed = weight.new_empty(blocks, inputs // 2, self._columns, 2)
        weight = weight.contiguous()
        self._pack(weight.data_ptr(), packed.data_ptr(), outputs, inputs)
        return packed

    def multiply(self, x: Tensor, packed: Tensor, outputs: int) -> Tensor:
        """x [N, inputs] times the transpose of the packed matrix: [N, outputs]."""
        x = x.contiguous()
        out = x.new_empty(len(x), outputs)
        self._multiply(x.data_ptr(), packed.data_ptr(), out.data_ptr(), *x.shape, outputs)
        return out


@cache
def native_matmul() -> NativeMatmul | None:
    """The functions; None without a compiler, or on a processor that cannot multiply bf16."""
    library = compiled(SOURCE)
    if library is None or not hasattr(library, "multiply"):
        return None
    return NativeMatmul(library)
