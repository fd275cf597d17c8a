"""Matrix products with packed bf16 weights: the compiled functions of `matmul.c`, on tensors.

torch's bf16 products reach half of a processor's rate when few tokens meet a large matrix, as in
decoding. Sums are taken in the order of torch's own, which is found by trial, so that what the
engine samples has the learner's log-probabilities to the bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.models.native import compiled

SOURCE = Path(__file__).with_name("matmul.c")

STRETCHES = (256, 512, 128, 64, 1024, 32)  # pairs that are summed up in one go, by guess
# rows and outputs of the products by which a guess is tried; some orders differ in few sums
TRIALS = ((64, 640), (512, 960))

_P, _L = ctypes.c_void_p, ctypes.c_long


class NativeMatmul:
    """See `matmul.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.columns.restype = _L
        self._columns = library.columns()
        self._pack, self._multiply = library.pack, library.multiply
        self._pack.argtypes, self._pack.restype = [_P, _P, _L, _L], None
        self._multiply.argtypes, self._multiply.restype = [_P, _P, _P, _L, _L, _L, _L], None
        self._chunks: dict[int, int | None] = {}  # by inputs; None: no guess was right

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
        inputs = x.shape[1]
        return self._product(x, packed, outputs, self.stretch(inputs))

    @property
    def address(self) -> int | None:
        """Where `multiply` of `matmul.c` lies, for other compiled code to call."""
        return ctypes.cast(self._multiply, _P).value

    def stretch(self, inputs: int) -> int:
        """How many pairs of so many inputs are added up in one go."""
        return self._chunk(inputs) or inputs // 2

    def in_torchs_order(self, inputs: int) -> bool:
        """Whether products with so many inputs are those of torch to the bit."""
        return self._chunk(inputs) is not None

    def _chunk(self, inputs: int) -> int | None:
        """How many pairs torch adds up in one go, as far as the guesses go."""
        if inputs not in self._chunks:
            guesses = (inputs // 2, *STRETCHES)
            found = (guess for guess in guesses if all(self._right(guess, inputs)))
            self._chunks[inputs] = next(found, None)
        return self._chunks[inputs]

    def _right(self, guess: int, inputs: int) -> Iterator[bool]:
        """Whether it gives torch's products to the bit, trial by trial."""
        g = torch.Generator().manual_seed(0)
        for shape in TRIALS:
            x, weight = (torch.randn(n, inputs, generator=g).bfloat16() for n in shape)
            found = self._product(x, self.pack(weight), len(weight), guess)
            yield torch.equal(found, F.linear(x, weight))

    def _product(self, x: Tensor, packed: Tensor, outputs: int, chunk: int) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(len(x), outputs)
        sizes = (*x.shape, outputs, chunk)
        self._multiply(x.data_ptr(), packed.data_ptr(), out.data_ptr(), *sizes)
        return out


@cache
def native_matmul() -> NativeMatmul | None:
    """The functions; None without a compiler, or on a processor that cannot multiply bf16."""
    library = compiled(SOURCE)
    if library is None or not hasattr(library, "multiply"):
        return None
    return NativeMatmul(library)
