"""Packed weights: the network as the engine runs it on CPUs, in the layout of matrix products.

torch's bf16 products pack the weights again in every call, which dominates a product with few
tokens. Packed once per update, and multiplied by `matmul.c` if available, else by oneDNN,
decoding's products take half the time. In fp32, products are those of `packed_matmul.c`, and
weights that were loaded from bf16 are stored in bf16, exactly. The price is a second copy of the
weights. Everything else is shared with the network: modules, embeddings and norms.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.kernels.packed_matmul import Matrix, native_packed
from palaestra.models.local.kernels.weight_packing import native_packing
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.quantised import QuantisedLinear

WORTHWHILE = 2**16  # entries of a matrix to be packed; LoRA's matrices are smaller


def packs(dtype: torch.dtype) -> bool:
    """Return whether a CPU multiplies packed weights of this number format faster than others."""
    if dtype is torch.float32:
        native = native_packed()
        return native is not None and native.pays
    return dtype is torch.bfloat16


def packed(network: DecoderNetwork) -> DecoderNetwork:
    """Return the network with its current weights packed; the network itself if that is no gain.

    The result is valid until the weights change; the network itself is not changed.
    """
    if network.whole:  # its modules are not ours to replace
        return network
    weight = network.embedding.weight
    if weight.device.type != "cpu" or not packs(weight.dtype):
        return network
    try:
        twin = _twin(network)
        if network.head is None:
            twin.head = _packed(weight)
    except (AttributeError, RuntimeError):
        return network  # a torch built without oneDNN
    assert isinstance(twin, DecoderNetwork)
    return twin


class PackedLinear(nn.Module):
    """A linear layer with a packed copy of a matrix, multiplied by `matmul.c`."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        """Pack the rows of a matrix of bf16, in order."""
        super().__init__()
        native, packing = native_matmul(), native_packing()
        assert native is not None and packing is not None
        self._native = native
        self.out_features, self.in_features = sum(map(len, parts)), parts[0].shape[1]
        self.packed = packing.pack(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self._native.multiply(x, self.packed, self.out_features)


class WideLinear(nn.Module):
    """A linear layer in fp32 with a packed copy of a matrix, multiplied by `packed_matmul.c`."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        """Pack the rows of a matrix, in order, all in bf16 or all in fp32."""
        super().__init__()
        native, packing = native_packed(), native_packing()
        assert native is not None and packing is not None
        self._native = native
        self.out_features, self.in_features = sum(map(len, parts)), parts[0].shape[1]
        if all(part.dtype is torch.bfloat16 or packing.fits_bf16(part) for part in parts):
            parts = [part.bfloat16() for part in parts]  # the same numbers
        self.packed = packing.pack(parts)
        self.matrix = Matrix.of(
            *(self.packed, self.out_features, self.in_features),
            narrow=parts[0].dtype is torch.bfloat16,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._native.multiply(x, self.matrix)


class ReorderedLinear(nn.Module):
    """A linear layer with a packed copy of a matrix, multiplied by oneDNN."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")


PACKED = (PackedLinear, WideLinear)
"""Layers that a network which only acts may hold in place of linear ones."""


def packed_layer(parts: Sequence[Tensor], dtype: torch.dtype) -> PackedLinear | WideLinear | None:
    """Return a layer with a packed matrix on a CPU; None if compiled code does not multiply it.

    Args:
        parts: the matrix's rows, in order; in bf16, or in `dtype`. They are read once.
        dtype: of activations.
    """
    if dtype is torch.float32:
        return WideLinear(parts) if packs(dtype) else None
    even = parts[0].shape[1] % 2 == 0
    narrow = dtype is torch.bfloat16 and native_matmul() is not None
    return PackedLinear(parts) if even and narrow else None


def check_whole(network: nn.Module) -> None:
    """Raise InputError if the network only acts: if matrices of it are held packed alone."""
    if any(isinstance(layer, PACKED) for layer in network.modules()):
        raise InputError(
            "This network was loaded to act only: its matrices are packed, and are not trained or "
            "saved; load its checkpoint with load_network(folder, dtype)."
        )


def parameters_of(network: nn.Module) -> int:
    """Return the number of weights, those of packed and quantised layers included."""
    held = sum(parameter.numel() for parameter in network.parameters())
    kinds = (*PACKED, QuantisedLinear)
    layers = [layer for layer in network.modules() if isinstance(layer, kinds)]
    return held + sum(layer.in_features * layer.out_features for layer in layers)


def _packed(weight: Tensor) -> nn.Module:
    weight = weight.detach()
    return packed_layer([weight], weight.dtype) or ReorderedLinear(weight)


def _twin(module: nn.Module) -> nn.Module:
    """Copy the module with its large linear layers replaced and everything else shared."""
    plain = isinstance(module, nn.Linear) and "bias" not in dict(module.named_parameters())
    if isinstance(module, nn.Linear) and plain and module.weight.numel() >= WORTHWHILE:
        return _packed(module.weight)
    twin = copy.copy(module)
    twin._modules = {name: child and _twin(child) for name, child in module._modules.items()}
    return twin
