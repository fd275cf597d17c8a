"""Causal attention on CPUs: the compiled functions of `causal_attention.c`, on tensors."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled

SOURCE = Path(__file__).with_name("causal_attention.c")
FEATURES = 32  # of the C code: the head dimension must be a multiple

_P, _L, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class NativeCausal:
    """The compiled functions of `causal_attention.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._weigh, self._gradients = library.weigh, library.attention_backward
        self._weigh.argtypes = [_P, _P, _P, _L, _L, _L, _L]
        self._gradients.argtypes = [*[_P] * 8, _L, _P, _L, _L, _F]

    def weigh(self, weights: Tensor, values: Tensor, out: Tensor, count: int = 1) -> Tensor:
        """Return values weighted by attention weights, summed key by key for any number of keys.

        Args:
            weights: [matrices, rows, length], dense, zero for unseen entries.
            values: [matrices, length, d], dense.
            out: [matrices, rows, d], dense; gets the result, and is returned.
            count: rows come in runs of this length; the last of a run sees all entries, each
                row before it one entry less. 1: all rows see all.

        Raises:
            MemoryError: there is no memory for the values in pairs.
        """
        assert weights.is_contiguous() and values.is_contiguous() and out.is_contiguous()
        pointers = [x.data_ptr() for x in (weights, values, out)]
        if self._weigh(*pointers, *weights.shape, count):
            raise MemoryError("can't allocate memory for attention's values")
        return out

    def gradients(
        self,
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        branches: Tensor,
        entries: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v.

        Args:
            grad: of the result, [N, heads, d].
            q: [N, heads, d].
            k: [N, kv_heads, d].
            v: likewise.
            branches: [B, 4], int64: the first own token of each, their number, where its path
                begins among the entries, and the path's length.
            entries: of all paths, int32.
            scale: of queries times keys.

        Raises:
            MemoryError: there is no memory for the attention weights of a branch.
        """
        grad, q, k, v = (x.contiguous() for x in (grad, q, k, v))
        grad_q = torch.empty_like(q)  # every token is a query in exactly one branch
        grad_k, grad_v = (torch.zeros(x.shape, dtype=torch.float32) for x in (k, v))
        sums = (grad_q, grad_k, grad_v)
        pointers = [x.data_ptr() for x in (q, k, v, grad, *sums, branches)]
        sizes = (q.shape[1], k.shape[1], scale)
        if self._gradients(*pointers, len(branches), entries.data_ptr(), *sizes):
            raise MemoryError("can't allocate memory for attention weights")
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


def native_causal(x: Tensor) -> NativeCausal | None:
    """Return the functions for queries [N, heads, d] like `x`; None if not available."""
    if x.device.type != "cpu" or x.dtype is not torch.bfloat16 or x.shape[-1] % FEATURES:
        return None
    return _loaded(x.shape[-1])


@cache
def _loaded(head_dim: int) -> NativeCausal | None:
    library = compiled(SOURCE, [f"-DHEAD_DIM={head_dim}"])
    if library is None or not hasattr(library, "attention_backward"):
        return None
    return NativeCausal(library)
