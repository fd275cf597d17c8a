"""Matrix products with packed bf16 weights: the compiled functions of `matmul.c`, on tensors.

torch's bf16 products reach half of a CPU's rate when few tokens are multiplied by a large matrix,
as in decoding. Sums are accumulated in torch's own order, which is found by trial, so that the
engine's log-probabilities equal the learner's to the bit.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.weight_packing import Packing, native_packing

SOURCE = Path(__file__).with_name("matmul.c")

STRETCHES = (256, 512, 128, 64, 1024, 32)  # guesses of the pairs summed per stretch
# rows and outputs of the products that test a guess; some orders differ in few sums
TRIALS = ((64, 640), (512, 960))

_P, _L = ctypes.c_void_p, ctypes.c_long


class NativeMatmul:
    """The compiled product of `matmul.c`, of an even number of inputs."""

    def __init__(self, library: ctypes.CDLL, packing: Packing) -> None:
        self._multiply, self._packing = library.multiply, packing
        self._multiply.argtypes, self._multiply.restype = [_P, _P, _P, _L, _L, _L, _L], None
        self._chunks: dict[int, int | None] = {}  # by number of inputs; None: no guess was right

    def multiply(self, x: Tensor, packed: Tensor, outputs: int) -> Tensor:
        """Multiply x [N, inputs] by the transpose of a matrix from `Packing`: [N, outputs]."""
        inputs = x.shape[1]
        return self._product(x, packed, outputs, self.stretch(inputs))

    @property
    def address(self) -> int | None:
        """Address of `multiply` of `matmul.c`, for other compiled code to call."""
        return ctypes.cast(self._multiply, _P).value

    def stretch(self, inputs: int) -> int:
        """Return the number of pairs summed per stretch, for this number of inputs."""
        return self._chunk(inputs) or inputs // 2

    def in_torchs_order(self, inputs: int) -> bool:
        """Return whether products with this number of inputs equal torch's to the bit."""
        return self._chunk(inputs) is not None

    def _chunk(self, inputs: int) -> int | None:
        """Return the number of pairs that torch sums per stretch; None if no guess is right."""
        if inputs not in self._chunks:
            g = torch.Generator().manual_seed(0)
            guesses = [inputs // 2, *STRETCHES]
            for shape in TRIALS:
                x, weight = (_random_rows(n, inputs, g) for n in shape)
                packed, wanted = self._packing.pack([weight]), F.linear(x, weight)
                guesses = [
                    guess
                    for guess in guesses
                    if torch.equal(self._product(x, packed, len(weight), guess), wanted)
                ]
            self._chunks[inputs] = next(iter(guesses), None)
        return self._chunks[inputs]

    def _product(self, x: Tensor, packed: Tensor, outputs: int, chunk: int) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(len(x), outputs)
        sizes = (*x.shape, outputs, chunk)
        self._multiply(x.data_ptr(), packed.data_ptr(), out.data_ptr(), *sizes)
        return out


def _random_rows(count: int, width: int, generator: torch.Generator) -> Tensor:
    """Return random numbers in bf16, [count, width], that each row shares with the next ones.

    As many numbers of their own would take longer than all products of the trials.
    """
    drawn = torch.randn(count + width - 1, generator=generator).bfloat16()
    return drawn.unfold(0, width, 1).contiguous()


@cache
def native_matmul() -> NativeMatmul | None:
    """Return the functions; None without a compiler, or on a CPU that cannot multiply bf16."""
    library, packing = compiled(SOURCE), native_packing()
    if library is None or packing is None or not hasattr(library, "multiply"):
        return None
    return NativeMatmul(library, packing)
