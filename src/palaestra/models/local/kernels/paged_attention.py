"""Paged attention on CPUs: the compiled functions of `paged_attention.c`, on tensors.

Tensor operations must copy the keys and values of a batch out of their blocks in every layer; a
compiled loop reads them in place. If it is not available (another device or number format, no
compiler), the engine computes the same with tensor operations.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled

SOURCE = Path(__file__).with_name("paged_attention.c")
LANES = 16  # of the C code's vectors: the head dimension must be a multiple

_P, _L, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class NativeAttention:
    """The compiled functions for one shape of network and cache."""

    def __init__(self, library: ctypes.CDLL, scale: float) -> None:
        self._attend = library.attend
        self._attend.argtypes = [_P, _L, _P, _P, _P, _P, _L, _P, _P, _L, _L, _F]
        self._attend.restype = None
        self._softmax = library.softmax_seen
        self._softmax.argtypes, self._softmax.restype = [_P, _P, _L, _L, _L, _L], None
        library.together.restype = _L
        self.reads_many: bool = bool(library.together())
        """Whether it is the fastest for many new tokens of a sequence, too."""
        self._scale = scale

    @property
    def address(self) -> int | None:
        """Address of the C function `attend`, for other compiled code to call."""
        return ctypes.cast(self._attend, _P).value

    def __call__(
        self, q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, rows: Tensor, lengths: Tensor
    ) -> Tensor:
        """Attend each token to the beginning of its sequence.

        Args:
            q: [N, heads, head_dim], the last two dimensions dense.
            keys: of one layer, [blocks, kv_heads, block, head_dim], dense.
            values: likewise.
            tables: the blocks of each sequence, [sequences, width], int32.
            rows: which sequence each token belongs to, [N], int32.
            lengths: how many tokens each one attends to, at least 1, [N], int32.

        Returns:
            [N, heads, head_dim].
        """
        out = torch.empty(q.shape, dtype=q.dtype)
        self._attend(
            *(q.data_ptr(), q.stride(0), keys.data_ptr(), values.data_ptr(), out.data_ptr()),
            *(tables.data_ptr(), tables.shape[1], rows.data_ptr(), lengths.data_ptr()),
            *(q.shape[0], keys.shape[1], self._scale),
        )
        return out

    def softmax(self, scores: Tensor, starts: Tensor) -> None:
        """Apply softmax in place, over the entries that each new token sees.

        Args:
            scores: of new tokens, [sequences, heads, new, reach], dense; unseen ones become zero.
            starts: known tokens of each sequence, [sequences], int32: its new token t sees the
                first start + t + 1 entries.
        """
        self._softmax(scores.data_ptr(), starts.data_ptr(), *scores.shape)


def native_attention(
    head_dim: int,
    share: int,
    block: int,
    dtype: torch.dtype,
    device: torch.device,
    scale: float | None = None,
) -> NativeAttention | None:
    """Return the compiled attention of a shape; None if it is not available.

    Args:
        head_dim: size of one head.
        share: query heads per key head.
        block: tokens per block of the cache.
        dtype: of the network, bf16 or fp32.
        device: of the network.
        scale: of queries times keys; None: head_dim^-1/2.
    """
    supported = dtype in (torch.bfloat16, torch.float32) and head_dim % LANES == 0
    if device.type != "cpu" or not supported:
        return None
    narrow = ["-DBF16"] if dtype == torch.bfloat16 else []
    shape = [f"-DHEAD_DIM={head_dim}", f"-DSHARE={share}", f"-DBLOCK={block}"]
    library = compiled(SOURCE, [*shape, *narrow])
    scale = head_dim**-0.5 if scale is None else scale
    return NativeAttention(library, scale) if library is not None else None
