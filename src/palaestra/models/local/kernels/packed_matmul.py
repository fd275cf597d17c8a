"""Products with packed weights on CPUs: the functions of `packed_matmul.c`, on tensors.

Weights are quantised, or those of a network in fp32. The latter are stored in bf16 if that loses
nothing, as in a network that was loaded from bf16: half the memory to read, and the same numbers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.matmul import native_matmul

SOURCE = Path(__file__).with_name("packed_matmul.c")
_NARROW, _FP32 = 2, 3  # formats of the C code, after those of `quantisation.FORMATS`

_P, _L = ctypes.c_void_p, ctypes.c_long


class Matrix(ctypes.Structure):
    """A packed matrix as the C code reads it; the tensors must outlive it."""

    _fields_ = [
        *((name, _P) for name in ("codes", "scales")),
        *((name, _L) for name in ("inputs", "outputs", "group", "format")),
    ]

    @classmethod
    def of(cls, packed: Tensor, outputs: int, inputs: int, *, narrow: bool) -> Matrix:
        """Return a matrix that `Packing` packed, from bf16 (`narrow`) or fp32."""
        format = _NARROW if narrow else _FP32
        return cls(packed.data_ptr(), None, inputs, outputs, inputs, format)


class NativePacked:
    """The compiled functions of `packed_matmul.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._dense, self._wide = library.dense, library.multiply_fp32
        self._dense.argtypes, self._dense.restype = [_P, _P, _L], None
        self._wide.argtypes, self._wide.restype = [*[_P] * 3, *[_L] * 4], None
        library.pays.restype = _L
        self.pays: bool = bool(library.pays())
        """Whether products with packed weights in fp32 are faster than torch's."""
        self._narrow = getattr(library, "multiply_bf16", None)
        if self._narrow is not None:
            self._narrow.argtypes, self._narrow.restype = [*[_P] * 3, *[_L] * 4], None

    def address(self, dtype: torch.dtype) -> int | None:
        """Return the product's address, for other compiled code to call; None without one."""
        product = self._wide if dtype is torch.float32 else self._narrow
        return None if product is None else ctypes.cast(product, _P).value

    def multiplies(self, dtype: torch.dtype, inputs: int) -> bool:
        """Return whether there is a product in this number format, with this number of inputs."""
        if dtype is torch.float32:
            return True
        matmul = native_matmul()
        narrow = dtype is torch.bfloat16 and self._narrow is not None
        return narrow and matmul is not None and inputs % 2 == 0

    def multiply(self, x: Tensor, matrix: Matrix) -> Tensor:
        """Multiply x [N, inputs] by the transpose of the matrix: [N, outputs], like `F.linear`."""
        x = x.contiguous()
        out = x.new_empty(len(x), matrix.outputs)
        given = (x.data_ptr(), ctypes.byref(matrix), out.data_ptr())
        sizes = (len(x), matrix.inputs, matrix.outputs)
        if x.dtype is torch.float32:
            self._wide(*given, *sizes, 0)
        else:
            matmul = native_matmul()
            assert matmul is not None and self._narrow is not None  # `multiplies`
            self._narrow(*given, *sizes, matmul.stretch(matrix.inputs))
        return out

    def dense(self, matrix: Matrix, dtype: torch.dtype) -> Tensor:
        """Return the matrix dequantised, [outputs, inputs], in fp32 or bf16."""
        out = torch.empty(matrix.outputs, matrix.inputs, dtype=dtype)
        self._dense(ctypes.byref(matrix), out.data_ptr(), dtype is torch.float32)
        return out


@cache
def native_packed() -> NativePacked | None:
    """Return the functions; None without a compiler."""
    library = compiled(SOURCE)
    return None if library is None else NativePacked(library)
