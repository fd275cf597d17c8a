"""Packed weights: the network as the engine runs it on CPUs, in the layout of matrix products.

torch's bf16 products pack the weights again in every call, which dominates a product with few
tokens. Packed once per update, and multiplied by `matmul.c` if available, else by oneDNN,
decoding's products take half the time. In fp32, products are those of `packed_matmul.c`, and
weights that were loaded from bf16 are stored in bf16, exactly. The price is a second copy of the
weights. Everything else is shared with the network: modules, embeddings and norms.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.kernels.packed_matmul import native_packed
from palaestra.models.local.network import DecoderNetwork

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

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        found = native_matmul()
        assert found is not None
        self._native, self._outputs = found, len(weight)
        self.packed = found.pack(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return self._native.multiply(x, self.packed, self._outputs)


class WideLinear(nn.Module):
    """A linear layer in fp32 with a packed copy of a matrix, multiplied by `packed_matmul.c`."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        found = native_packed()
        assert found is not None
        self._native = found
        self.packed, self.matrix = found.pack(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return self._native.multiply(x, self.matrix)


class ReorderedLinear(nn.Module):
    """A linear layer with a packed copy of a matrix, multiplied by oneDNN."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")


def _packed(weight: Tensor) -> nn.Module:
    if weight.dtype is torch.float32:
        return WideLinear(weight)
    even = weight.shape[1] % 2 == 0
    return PackedLinear(weight) if even and native_matmul() else ReorderedLinear(weight)


def _twin(module: nn.Module) -> nn.Module:
    """Copy the module with its large linear layers replaced and everything else shared."""
    plain = isinstance(module, nn.Linear) and "bias" not in dict(module.named_parameters())
    if isinstance(module, nn.Linear) and plain and module.weight.numel() >= WORTHWHILE:
        return _packed(module.weight)
    twin = copy.copy(module)
    twin._modules = {name: child and _twin(child) for name, child in module._modules.items()}
    return twin
