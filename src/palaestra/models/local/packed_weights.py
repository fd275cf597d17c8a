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
from palaestra.models.local.kernels.weight_packing import Packing, native_packing
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
    """A linear layer with a packed copy of a matrix of bf16, multiplied by `matmul.c`."""

    def __init__(self, packed: Tensor, outputs: int, inputs: int) -> None:
        super().__init__()
        native = native_matmul()
        assert native is not None
        self._native = native
        self.packed, self.out_features, self.in_features = packed, outputs, inputs

    def forward(self, x: Tensor) -> Tensor:
        return self._native.multiply(x, self.packed, self.out_features)


class WideLinear(nn.Module):
    """A linear layer in fp32 with a packed copy of a matrix, multiplied by `packed_matmul.c`."""

    def __init__(self, packed: Tensor, outputs: int, inputs: int, *, narrow: bool) -> None:
        """Hold a matrix that was packed from bf16 (`narrow`) or fp32."""
        super().__init__()
        native = native_packed()
        assert native is not None
        self._native = native
        self.packed, self.out_features, self.in_features = packed, outputs, inputs
        self.matrix = Matrix.of(packed, outputs, inputs, narrow=narrow)

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


def multiplies_packed(dtype: torch.dtype, inputs: int) -> bool:
    """Return whether a CPU multiplies packed matrices with this many inputs by compiled code."""
    if dtype is torch.float32:
        return packs(dtype)
    return inputs % 2 == 0 and dtype is torch.bfloat16 and native_matmul() is not None


def packed_layers(
    matrices: Sequence[Sequence[Tensor]], dtype: torch.dtype
) -> list[PackedLinear] | list[WideLinear]:
    """Return layers with packed matrices, all packed in one call; see `multiplies_packed`.

    Args:
        matrices: the rows of each in parts, in order; in bf16, or in `dtype`. They are read once.
        dtype: of activations.
    """
    packing = native_packing()
    assert packing is not None  # `multiplies_packed`
    sizes = [(sum(map(len, parts)), parts[0].shape[1]) for parts in matrices]
    if dtype is torch.bfloat16:
        made = zip(packing.pack_all(matrices), sizes, strict=True)
        return [PackedLinear(packed, *size) for packed, size in made]
    stored = [_narrowed(parts, packing) for parts in matrices]
    narrow = [parts[0].dtype is torch.bfloat16 for parts in stored]
    found = zip(packing.pack_all(stored), sizes, narrow, strict=True)
    return [WideLinear(packed, *size, narrow=short) for packed, size, short in found]


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
    if not multiplies_packed(weight.dtype, weight.shape[1]):
        return ReorderedLinear(weight)
    return packed_layers([[weight]], weight.dtype)[0]


def _narrowed(parts: Sequence[Tensor], packing: Packing) -> Sequence[Tensor]:
    """Return a matrix's rows in bf16 if that holds them exactly, else as they are."""
    if not all(part.dtype is torch.bfloat16 or packing.fits_bf16(part) for part in parts):
        return parts
    return [part.bfloat16() for part in parts]


def _twin(module: nn.Module) -> nn.Module:
    """Copy the module with its large linear layers replaced and everything else shared."""
    plain = isinstance(module, nn.Linear) and "bias" not in dict(module.named_parameters())
    if isinstance(module, nn.Linear) and plain and module.weight.numel() >= WORTHWHILE:
        return _packed(module.weight)
    twin = copy.copy(module)
    twin._modules = {name: child and _twin(child) for name, child in module._modules.items()}
    return twin
