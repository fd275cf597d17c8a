"""All blocks of a network in one call, for tokens that read their past in place: `layers.c`.

Between a decoding step's compiled functions lie allocations, views and the interpreter; for small
networks these take a third of the step. Here the same functions are called one after the other
from C: the results are the same to the bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from palaestra.models.attention import InPlace
from palaestra.models.cache import KeyValueCache
from palaestra.models.kernels import load
from palaestra.models.native import compiled
from palaestra.models.native_attention import NativeAttention
from palaestra.models.native_matmul import native_matmul
from palaestra.models.network import Block, DecoderNetwork
from palaestra.models.packed import PackedLinear

SOURCE = Path(__file__).with_name("layers.c")

_P, _L, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
_MATRICES = ("qkv", "out", "gate_up", "down")


class _Functions(ctypes.Structure):
    _fields_ = [(name, _P) for name in ("rms_norm", "rotate", "gated", "multiply", "attend")]


class _Layer(ctypes.Structure):
    _fields_ = [
        (name, _P)
        for name in (
            *("attention_norm", "qkv", "out", "mlp_norm", "gate_up", "down"),
            *("keys", "values"),
        )
    ]


class _Sizes(ctypes.Structure):
    _fields_ = [
        *(
            (name, _L)
            for name in (
                *("width", "heads", "kv_heads", "head_dim", "inner"),
                *("width_chunk", "heads_chunk", "inner_chunk"),
            )
        ),
        *((name, _F) for name in ("eps", "scale")),
    ]


class NativeLayers:
    """The blocks of one packed network over one cache; good until the weights change."""

    def __init__(
        self,
        run: Callable[..., None],
        functions: _Functions,
        sizes: _Sizes,
        network: DecoderNetwork,
        cache: KeyValueCache,
    ) -> None:
        """Use `native_layers`."""
        self._run, self._functions, self._sizes = run, functions, sizes
        self._network = network  # whose tensors the addresses below are of
        blocks: Sequence[Any] = list(network.blocks)
        stores = zip(blocks, cache.keys, cache.values, strict=True)
        self._layers = (_Layer * len(blocks))(
            *(
                _Layer(
                    *(block.attention_norm.data_ptr(), block.qkv.packed.data_ptr()),
                    *(block.out.packed.data_ptr(), block.mlp_norm.data_ptr()),
                    *(block.gate_up.packed.data_ptr(), block.down.packed.data_ptr()),
                    *(keys.data_ptr(), values.data_ptr()),
                )
                for block, keys, values in stores
            )
        )

    def __call__(self, x: Tensor, past: InPlace) -> Tensor:
        """Run all blocks on the hidden states x [N, width], which change."""
        n, s = len(x), self._sizes
        cos, sin = (part.contiguous() for part in self._network.rotary(past.positions))
        head = s.head_dim
        widths = (
            *(s.width, s.width, (s.heads + 2 * s.kv_heads) * head, s.heads * head),
            *(2 * s.inner, s.inner),
        )
        rooms = [x.new_empty(n, width) for width in widths]
        scales = torch.empty(n, dtype=torch.float32)
        self._run(
            *(ctypes.byref(self._functions), ctypes.byref(s), self._layers, len(self._layers)),
            *(x.data_ptr(), cos.data_ptr(), sin.data_ptr(), past.written.data_ptr()),
            *(past.table.data_ptr(), past.table.shape[1]),
            *(past.rows.data_ptr(), past.lengths.data_ptr(), n),
            *(room.data_ptr() for room in rooms),
            scales.data_ptr(),
        )
        return x


def native_layers(
    network: DecoderNetwork, cache: KeyValueCache, attention: NativeAttention | None
) -> NativeLayers | None:
    """One call for all blocks; None where a part of them is not compiled.

    Args:
        network: as `packed` made it.
        cache: that holds its keys and values.
        attention: over that cache.
    """
    matmul, config = native_matmul(), network.config
    if attention is None or matmul is None or network.dtype is not torch.bfloat16:
        return None
    kernels, run = load(torch.bfloat16), _library()
    if kernels is None or run is None or not all(map(_packed, network.blocks)):
        return None
    functions = _Functions(
        *(kernels.address(name) for name in ("rms_norm", "rotate", "gated")),
        *(matmul.address, attention.address),
    )
    own = config.num_attention_heads * config.head_dim
    sizes = _Sizes(
        *(config.hidden_size, config.num_attention_heads, config.num_key_value_heads),
        *(config.head_dim, config.intermediate_size),
        *(matmul.stretch(inputs) for inputs in (config.hidden_size, own, config.intermediate_size)),
        *(config.rms_norm_eps, config.head_dim**-0.5),
    )
    return NativeLayers(run, functions, sizes, network, cache)


@cache
def _library() -> Callable[..., None] | None:
    library = compiled(SOURCE)
    if library is None:
        return None
    library.run.argtypes = [_P, _P, _P, _L, *[_P] * 5, _L, _P, _P, _L, *[_P] * 7]
    library.run.restype = None
    found: Callable[..., None] = library.run
    return found


def _packed(block: object) -> bool:
    """Whether a block is plain, and its matrices are packed for `matmul.c`."""
    if type(block) is not Block or block.attention_norm.dtype is not torch.bfloat16:
        return False
    return all(type(getattr(block, name)) is PackedLinear for name in _MATRICES)
