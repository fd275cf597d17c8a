"""Products with quantised weights on CPUs: the functions of `quantised_matmul.c`, on tensors."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.matmul import native_matmul

SOURCE = Path(__file__).with_name("quantised_matmul.c")
COLUMNS = 48  # outputs of a block, as in the C code

_P, _L = ctypes.c_void_p, ctypes.c_long


class Matrix(ctypes.Structure):
    """A quantised matrix as the C code reads it; the tensors must outlive it."""

    _fields_ = [
        *((name, _P) for name in ("codes", "scales")),
        *((name, _L) for name in ("inputs", "outputs", "group", "format")),
    ]


class NativeQuantised:
    """The compiled functions of `quantised_matmul.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._dense, self._wide = library.dense, library.multiply_fp32
        self._dense.argtypes, self._dense.restype = [_P, _P, _L], None
        self._wide.argtypes, self._wide.restype = [_P, _P, _P, _L], None
        self._narrow = getattr(library, "multiply_bf16", None)
        if self._narrow is not None:
            self._narrow.argtypes, self._narrow.restype = [*[_P] * 3, *[_L] * 4], None

    @property
    def address(self) -> int | None:
        """Address of the product in bf16, for other compiled code to call; None without one."""
        return None if self._narrow is None else ctypes.cast(self._narrow, _P).value

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
        given = (x.data_ptr(), ctypes.byref(matrix), out.data_ptr(), len(x))
        if x.dtype is torch.float32:
            self._wide(*given)
        else:
            matmul = native_matmul()
            assert matmul is not None and self._narrow is not None  # `multiplies`
            stretch = matmul.stretch(matrix.inputs)
            self._narrow(*given, matrix.inputs, matrix.outputs, stretch)
        return out

    def dense(self, matrix: Matrix, dtype: torch.dtype) -> Tensor:
        """Return the matrix dequantised, [outputs, inputs], in fp32 or bf16."""
        out = torch.empty(matrix.outputs, matrix.inputs, dtype=dtype)
        self._dense(ctypes.byref(matrix), out.data_ptr(), dtype is torch.float32)
        return out


@cache
def native_quantised() -> NativeQuantised | None:
    """Return the functions; None without a compiler."""
    library = compiled(SOURCE)
    return None if library is None else NativeQuantised(library)
