"""Fused kernels: the compiled functions of `fused.c`, on tensors; CUDA devices use Triton.

Between a network's matrix products, torch runs many small operations, each a pass through memory;
each function here is one pass. If they are not available (another device or number format, no
compiler, no Triton), callers use tensor operations with the same results.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled

if TYPE_CHECKING:
    from palaestra.models.local.kernels.triton_kernels import TritonKernels

SOURCE = Path(__file__).with_name("fused.c")
# sums may be reordered; nothing is assumed about NaN and infinities
FLAGS = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")

_P, _L, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
SIGNATURES = {
    "rms_norm": [_P, _P, _P, _P, _L, _L, _F],
    "rms_norm_backward": [_P, _P, _P, _P, _P, _P, _L, _L, _L],
    "gated": [_P, _P, _L, _L],
    "gated_backward": [_P, _P, _P, _L, _L],
    "rotate": [_P, _L, _P, _P, _F, _P, _L, _L, _L, _L],
    "causal_softmax": [_P, _L, _L, _L],
    "token_logprobs": [_P, _P, _F, _P, _P, _P, _L, _L],
    "token_logprobs_backward": [_P, _P, _F, _P, _P, _P, _P, _L, _L],
    "draw": [_P, _P, _P, _P, _P, _P, _L, _L],
    "widen_add": [_P, _P, _L],
}


def kernels_for(x: Tensor) -> Kernels | TritonKernels | None:
    """Return the functions for the device and number format of `x`; None if there are none."""
    if x.is_cuda and x.dtype in (torch.bfloat16, torch.float32):
        return triton_kernels()
    return processor_kernels(x)


def processor_kernels(x: Tensor) -> Kernels | None:
    """Return the functions for CPU tensors only; these include some that Triton's lack."""
    if x.device.type != "cpu" or x.dtype not in (torch.bfloat16, torch.float32):
        return None
    return load(x.dtype)


@cache
def load(dtype: torch.dtype) -> Kernels | None:
    """Compile the functions for this number format, once."""
    narrow = ["-DBF16"] if dtype is torch.bfloat16 else []
    library = compiled(SOURCE, [*FLAGS, *narrow])
    return Kernels(library) if library is not None else None


@cache
def triton_kernels() -> TritonKernels | None:
    """Return the functions of CUDA devices; torch installs Triton on Linux."""
    if importlib.util.find_spec("triton") is None:
        return None
    from palaestra.models.local.kernels.triton_kernels import TritonKernels

    return TritonKernels()


class Kernels:
    """The functions of `fused.c`; tensors share one number format, statistics are fp32."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None

    def address(self, name: str) -> int | None:
        """Return the address of a function, for other compiled code to call."""
        return ctypes.cast(getattr(self._call, name), _P).value

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return the normed rows of x [N, width], and each row's factor, fp32 [N, 1]."""
        x, weight = x.contiguous(), weight.contiguous()
        out, scale = torch.empty_like(x), x.new_empty(len(x), 1, dtype=torch.float32)
        self._call.rms_norm(*_at(x, weight, out, scale), *x.shape, eps)
        return out, scale

    def rms_norm_backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of x, and of the weight in fp32."""
        grad, x, weight = grad.contiguous(), x.contiguous(), weight.contiguous()
        found, parts = torch.empty_like(x), torch.get_num_threads()
        sums = x.new_zeros(parts, x.shape[1], dtype=torch.float32)
        pointers = _at(grad, x, weight, scale, found, sums)
        self._call.rms_norm_backward(*pointers, *x.shape, parts)
        return found, sums.sum(dim=0)

    def gated(self, gate_up: Tensor) -> Tensor:
        """Return silu(first half) x second half of [N, 2 inner]."""
        gate_up = gate_up.contiguous()
        out = gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)
        self._call.gated(*_at(gate_up, out), *out.shape)
        return out

    def gated_backward(self, grad: Tensor, gate_up: Tensor) -> Tensor:
        """Return the gradient of `gated`, [N, 2 inner]."""
        grad, gate_up = grad.contiguous(), gate_up.contiguous()
        found = torch.empty_like(gate_up)
        self._call.gated_backward(*_at(grad, gate_up, found), *grad.shape)
        return found

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, *, back: bool) -> None:
        """Rotate x [N, heads, d] by angles [N, 1, d / 2], or back by them, into `out`.

        Only the first dimension of x and of `out` may have gaps.
        """
        rows, heads, d = x.shape
        cos, sin = cos.contiguous(), sin.contiguous()
        (start, *angles), (end,) = _at(x, cos, sin), _at(out)
        self._call.rotate(
            *(start, x.stride(0), *angles, -1.0 if back else 1.0),
            *(end, out.stride(0), rows, heads, d // 2),
        )

    def causal_softmax(self, scores: Tensor, count: int) -> None:
        """Apply softmax in place over the last dimension of dense scores [..., count, length].

        The last of `count` rows sees all entries, each row before it one entry less.
        """
        length = scores.shape[-1]
        self._call.causal_softmax(*_at(scores), scores.numel() // length, length, count)

    def token_logprobs(
        self, logits: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and normalisers of dense logits [M, V], fp32 [M]."""
        lp, nats, norm = logits.new_empty(3, len(logits), dtype=torch.float32)
        pointers = _at(lp, nats, norm)
        self._call.token_logprobs(*_at(logits, targets), temperature, *pointers, *logits.shape)
        return lp, nats, norm

    def token_logprobs_backward(
        self,
        logits: Tensor,
        targets: Tensor,
        temperature: float,
        norm: Tensor,
        nats: Tensor,
        grad: Tensor,
        pull: Tensor | None,
    ) -> None:
        """Turn logits into their gradient.

        `grad` is that of the log-probabilities [M], `pull` that of the entropies.
        """
        pointers = [*_at(norm, nats, grad), None if pull is None else pull.data_ptr()]
        self._call.token_logprobs_backward(
            *_at(logits, targets), temperature, *pointers, *logits.shape
        )

    def sample(
        self, logits: Tensor, temperature: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sample as `sampling.sample` does; logits are dense and unchanged, the rest is fp32."""
        tokens = torch.empty(len(logits), dtype=torch.int64)
        lp, nats = torch.empty(2, len(logits), dtype=torch.float32)
        given = (temperature.float().contiguous(), uniforms.float().contiguous())
        self._call.draw(*_at(logits, *given, tokens, lp, nats), *logits.shape)
        return tokens, lp, nats

    def widen_add(self, total: Tensor, x: Tensor) -> None:
        """Add dense x to fp32 sums of its shape."""
        self._call.widen_add(*_at(total, x), x.numel())


def _at(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]
