"""All blocks of a network in one call to `layers.c`, for tokens that read their past in place.

Between a decoding step's compiled functions, allocations, views and the interpreter take time: for
small networks a third of the step. Here C calls the same functions one after the other; the
results are equal to the bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from palaestra.models.local.architecture import Activation, HeadNorm
from palaestra.models.local.cache import KeyValueCache
from palaestra.models.local.engine_attention import InPlace
from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.fused import load
from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.kernels.packed_matmul import Matrix, native_packed
from palaestra.models.local.kernels.paged_attention import NativeAttention
from palaestra.models.local.network import Block, DecoderNetwork
from palaestra.models.local.packed_weights import PackedLinear, WideLinear
from palaestra.models.local.quantised import QuantisedLinear

SOURCE = Path(__file__).with_name("layers.c")

_P, _L, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
_MATRICES = ("qkv", "out", "gate_up", "down")


class _Functions(ctypes.Structure):
    _fields_ = [(name, _P) for name in ("rms_norm", "rotate", "gated", "multiply", "attend")]


_WEIGHTS = (  # of a block, in the order of `layer` in the C code
    *("attention_norm", "qkv", "qkv_bias", "q_norm", "k_norm", "out", "out_bias"),
    *("attention_after_norm", "mlp_norm", "gate_up", "gate_up_bias", "down", "down_bias"),
    "mlp_after_norm",
)


class _Layer(ctypes.Structure):
    _fields_ = [(name, _P) for name in (*_WEIGHTS, "keys", "values")]


class _Sizes(ctypes.Structure):
    _fields_ = [
        *(
            (name, _L)
            for name in (
                *("width", "heads", "kv_heads", "head_dim", "inner"),
                *("width_chunk", "heads_chunk", "inner_chunk", "q_rows", "k_rows"),
            )
        ),
        *((name, _F) for name in ("eps", "scale", "residual")),
    ]


class NativeLayers:
    """The blocks of one packed network over one cache; valid until the weights change."""

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
        self._network = network  # keeps the tensors alive whose addresses are below
        self._matrices: list[Matrix] = []  # likewise
        blocks: Sequence[Any] = list(network.blocks)
        stores = zip(blocks, cache.keys, cache.values, strict=True)
        self._layers = (_Layer * len(blocks))(
            *(
                _Layer(
                    *(self._address(getattr(block, name)) for name in _WEIGHTS),
                    *(keys.data_ptr(), values.data_ptr()),
                )
                for block, keys, values in stores
            )
        )

    def _address(
        self, part: Tensor | PackedLinear | WideLinear | QuantisedLinear | None
    ) -> int | None:
        """Return where a weight begins; None if the network has none."""
        if isinstance(part, WideLinear | QuantisedLinear):
            self._matrices.append(part.matrix)
            return ctypes.addressof(self._matrices[-1])
        if isinstance(part, PackedLinear):
            return part.packed.data_ptr()
        return None if part is None else part.data_ptr()

    def __call__(self, x: Tensor, past: InPlace) -> Tensor:
        """Run all blocks on the hidden states x [N, width], in place."""
        n, s = len(x), self._sizes
        # indexed with positions, so contiguous
        angles = [part for pair in self._network.angles(past.positions) for part in pair]
        head = s.head_dim
        widths = (
            *(s.width, s.width, (s.heads + 2 * s.kv_heads) * head, s.heads * head),
            *(2 * s.inner, s.inner),
        )
        buffers = [x.new_empty(n, width) for width in widths]
        scales = torch.empty(n * s.heads, dtype=torch.float32)
        self._run(
            *(ctypes.byref(self._functions), ctypes.byref(s), self._layers, len(self._layers)),
            x.data_ptr(),
            (_P * len(angles))(*(part.data_ptr() for part in angles)),
            past.written.data_ptr(),
            *(past.table.data_ptr(), past.table.shape[1]),
            *(past.rows.data_ptr(), past.lengths.data_ptr(), n),
            *(buffer.data_ptr() for buffer in buffers),
            scales.data_ptr(),
        )
        return x


def native_layers(
    network: DecoderNetwork, cache: KeyValueCache, attention: NativeAttention | None
) -> NativeLayers | None:
    """Return one call for all blocks; None if a part of them is not compiled.

    Experts, other activations than SwiGLU's, norms with an offset and attention that is not plain
    in the network's context are not.

    Args:
        network: as returned by `packed`.
        cache: holds its keys and values.
        attention: over that cache.
    """
    if network.whole:
        return None
    config, dtype = network.config, network.dtype
    if attention is None or dtype not in (torch.bfloat16, torch.float32):
        return None
    kernels, run = load(dtype), _library(dtype)
    if kernels is None or run is None or not _known(network):
        return None
    multiply = _multiply(network)
    if multiply is None:
        return None
    matmul = native_matmul() if dtype is torch.bfloat16 else None
    functions = _Functions(
        *(kernels.address(name) for name in ("rms_norm", "rotate", "gated")),
        *(multiply, attention.address),
    )
    own = config.num_attention_heads * config.head_dim
    whole = config.head_norm is HeadNorm.WHOLE
    normed = (1, 1) if whole else (config.num_attention_heads, config.num_key_value_heads)
    sizes = _Sizes(
        *(config.hidden_size, config.num_attention_heads, config.num_key_value_heads),
        *(config.head_dim, config.intermediate_size),
        *(
            0 if matmul is None else matmul.stretch(inputs)
            for inputs in (config.hidden_size, own, config.intermediate_size)
        ),
        *normed,
        *(config.rms_norm_eps, config.attention_scale, config.residual_multiplier),
    )
    return NativeLayers(run, functions, sizes, network, cache)


@cache
def _library(dtype: torch.dtype) -> Callable[..., None] | None:
    library = compiled(SOURCE, ["-DBF16"] if dtype is torch.bfloat16 else [])
    if library is None:
        return None
    library.run.argtypes = [_P, _P, _P, _L, *[_P] * 4, _L, _P, _P, _L, *[_P] * 7]
    library.run.restype = None
    found: Callable[..., None] = library.run
    return found


def _known(network: DecoderNetwork) -> bool:
    """Return whether the C code knows everything that the network's blocks compute."""
    config = network.config
    experts = any(traits.experts is not None for traits in config.layers)
    silu = config.activation is Activation.SILU
    return silu and not (experts or config.norm_offset) and config.plain_attention(network.context)


def _multiply(network: DecoderNetwork) -> int | None:
    """Return the address of the product with the blocks' matrices; None if it is not compiled."""
    matmul, native, dtype = native_matmul(), native_packed(), network.dtype
    if not all(_of_one_format(block, dtype) for block in network.blocks):
        return None
    layers = [getattr(block, name) for block in network.blocks for name in _MATRICES]
    if all(type(layer) is PackedLinear for layer in layers):
        return None if matmul is None else matmul.address
    if native is None or not all(
        type(layer) is WideLinear
        or (type(layer) is QuantisedLinear and native.multiplies(dtype, layer.in_features))
        for layer in layers
    ):
        return None
    return native.address(dtype)


def _of_one_format(block: object, dtype: torch.dtype) -> bool:
    """Return whether a block is a resident one, and all but its matrices is of `dtype`."""
    return type(block) is Block and all(p.dtype is dtype for p in block.parameters())
