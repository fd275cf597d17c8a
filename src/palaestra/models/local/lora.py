"""LoRA adapters (Hu et al. 2021), any number of them on one resident network.

A linear layer's output is `x W' + scale (x A') B'`, where the network holds W once and each adapter
its own A and B. Which adapter acts is chosen for each token (`ActiveAdapters`), so that one pass
runs sequences of several adapters and of none: the matrices of all are put side by side, and each
token's share of the others is zero.

Adapters stay unmerged while the model acts and learns: merging them into bf16 weights widens the
gap between sampler and learner (measured: 0.03-0.08 nats, against 0.02). Only an exported copy is
merged, in fp32, and rounded so that small changes stay.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import PACKED
from palaestra.models.local.quantisation import Quantisation
from palaestra.models.local.quantised import QuantisedLinear
from palaestra.models.local.rounding import round_into

OWN = "default"
"""The adapter that a policy trains and acts with."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What an adapter adds to one linear layer: `scale * up @ down` to its matrix."""

    down: Tensor  # A, [rank, inputs]
    up: Tensor  # B, [outputs, rank]
    scale: float  # alpha / rank, usually


class Part(NamedTuple):
    """The columns of one adapter in a layer's inner product."""

    at: int  # which of the active adapters
    rank: int
    scale: float


class ActiveAdapters:
    """The adapters of the next pass; shared by all adapted layers of a network."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = (OWN,)
        self.by_role: Mapping[str, str] = {}
        """The adapters that learn, by the roles that they belong to; empty: only `OWN`."""

        self._shares: Tensor | None = None  # [N, names]: 1 where a token uses it; None: all use one
        self._columns: dict[tuple[Part, ...], Tensor] = {}

    @contextmanager
    def used(self, name: str | None) -> Iterator[None]:
        """Let all tokens use one adapter, or none, within the context."""
        before = self.names
        self.names = () if name is None else (name,)
        try:
            yield
        finally:
            self.names = before

    @contextmanager
    def used_by_each(
        self, names: Sequence[str | None], counts: Sequence[int], like: Tensor
    ) -> Iterator[None]:
        """Let each sequence of a pass use its own adapter, or none, within the context.

        Args:
            names: of each sequence.
            counts: tokens of each.
            like: its device and number format are the network's.
        """
        if len(set(names)) == 1:
            with self.used(names[0]):
                yield
            return
        kinds = tuple(dict.fromkeys(name for name in names if name is not None))
        rows = torch.tensor([[float(name == kind) for kind in kinds] for name in names])
        before = self.names
        self.names = kinds
        self._shares = rows.repeat_interleave(torch.tensor(counts), dim=0).to(like)
        try:
            yield
        finally:
            self.names, self._shares, self._columns = before, None, {}

    def mixed(self, inner: Tensor, parts: tuple[Part, ...]) -> Tensor:
        """Scale `x A'` of some adapters, side by side: [N, ranks]; zero where not used."""
        if self._shares is None:
            return inner * parts[0].scale
        if parts not in self._columns:  # layers share it
            columns = [
                self._shares[:, part.at : part.at + 1].expand(-1, part.rank) * part.scale
                for part in parts
            ]
            self._columns[parts] = torch.cat(columns, dim=1)
        return inner * self._columns[parts]


class AdaptedLinear(nn.Module):
    """A linear layer with adapters."""

    def __init__(self, base_layer: nn.Module, active: ActiveAdapters) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.lora_A, self.lora_B = nn.ParameterDict(), nn.ParameterDict()
        self.scales: dict[str, float] = {}
        self._active = active

    def add(self, name: str, factors: Factors, dtype: torch.dtype) -> None:
        """Add an adapter, in the layer's number format, or `dtype` if it is quantised or packed."""
        base: Any = self.base_layer
        like: Tensor
        if isinstance(base, QuantisedLinear):
            like = base.scales
        else:
            like = base.packed if isinstance(base, PACKED) else base.weight
        kind, device = like.dtype if like.is_floating_point() else dtype, like.device
        self.lora_A[name] = nn.Parameter(factors.down.detach().to(device, kind, copy=True))
        self.lora_B[name] = nn.Parameter(factors.up.detach().to(device, kind, copy=True))
        self.scales[name] = factors.scale

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x)
        active = [(at, name) for at, name in enumerate(self._active.names) if name in self.scales]
        if not active:
            return found
        downs = [self.lora_A[name] for _, name in active]
        ups = [self.lora_B[name] for _, name in active]
        parts = tuple(Part(at, len(self.lora_A[name]), self.scales[name]) for at, name in active)
        down, up = (downs[0], ups[0]) if len(active) == 1 else (torch.cat(downs), torch.cat(ups, 1))
        return found + F.linear(self._active.mixed(F.linear(x, down), parts), up)

    @torch.no_grad()
    def merged(self, name: str | None) -> nn.Module:
        """Return the base layer, dequantised, with one adapter added to its matrix in place.

        Without a name, add none.
        """
        base: Any = self.base_layer
        if isinstance(base, QuantisedLinear):
            base = base.plain(next(iter(self.lora_A.values())).dtype)
        if name is not None and name in self.scales:
            change = self.lora_B[name].float() @ self.lora_A[name].float() * self.scales[name]
            change = change if isinstance(base, nn.Linear) else change.T  # as Conv1D has it
            round_into(base.weight.data, base.weight.data.float() + change)
        return base


def add_lora(network: DecoderNetwork, rank: int, seed: int, name: str = OWN) -> None:
    """Add an adapter to be trained to every linear layer of the blocks; outputs do not change yet.

    A is uniform with variance 1 / (3 inputs) and B zero, as in peft; the scale is 2.
    """
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for place, layer in linear_layers(network).items():
        outputs, inputs = sizes_of(getattr(layer, "base_layer", layer))
        down = torch.empty(rank, inputs, device=network.device)
        if network.device.type != "meta":
            drawn = torch.rand(rank, inputs, generator=generator)
            down.copy_((2 * drawn - 1) / math.sqrt(inputs))
        factors[place] = Factors(down, torch.zeros(outputs, rank, device=network.device), 2.0)
    add_adapter(network, name, factors)


def quantise(network: DecoderNetwork, quantisation: Quantisation) -> None:
    """Quantise the linear layers of the blocks, in place, before adapters are added."""
    for place, layer in linear_layers(network).items():
        weight: Any = layer.weight
        network.set_submodule(place, QuantisedLinear(weight, quantisation))
    network.quantisation = quantisation


def add_adapter(network: DecoderNetwork, name: str, factors: Mapping[str, Factors]) -> None:
    """Add an adapter beside those that the network has.

    Args:
        network: changed in place.
        name: of the adapter.
        factors: by the names of `linear_layers`; other layers are not changed.
    """
    if network.adapters is None:
        network.adapters = ActiveAdapters()
    for place, layer in linear_layers(network).items():
        if place in factors:
            if not isinstance(layer, AdaptedLinear):
                layer = AdaptedLinear(layer, network.adapters)
                network.set_submodule(place, layer)
            layer.add(name, factors[place], network.dtype)


def adapter_of(network: DecoderNetwork, name: str) -> dict[str, Factors]:
    """Return an adapter by its layers; empty if there is none of that name."""
    return {
        place: Factors(layer.lora_A[name].detach(), layer.lora_B[name].detach(), layer.scales[name])
        for place, layer in linear_layers(network).items()
        if isinstance(layer, AdaptedLinear) and name in layer.scales
    }


def merged(network: DecoderNetwork, name: str | None = OWN) -> DecoderNetwork:
    """Return a copy of the network with one of its adapters merged, or none; no layer is quantised.

    A network without adapters and quantised layers is returned itself.
    """
    if network.adapters is None and network.quantisation is None:
        return network
    whole = copy.deepcopy(network)
    merge(whole, name)
    return whole


def merge(network: DecoderNetwork, name: str | None = OWN) -> None:
    """Merge one of a network's adapters, or none, drop the others, and dequantise all layers."""
    for place, layer in linear_layers(network).items():
        if isinstance(layer, AdaptedLinear):
            network.set_submodule(place, layer.merged(name))
        elif isinstance(layer, QuantisedLinear):
            network.set_submodule(place, layer.plain(network.dtype))
    network.adapters = network.quantisation = None


def linear_layers(network: DecoderNetwork) -> dict[str, nn.Module]:
    """Return the linear layers of the blocks by their names, adapted or not.

    A router is none: its outputs choose, they are not features.
    """
    kinds: tuple[type[nn.Module], ...] = (nn.Linear, QuantisedLinear, *PACKED)
    if network.whole:
        from transformers.pytorch_utils import Conv1D

        kinds = (nn.Linear, Conv1D)
    found: dict[str, nn.Module] = {}
    for name, module in network.named_modules():
        if isinstance(module, AdaptedLinear):
            found[name] = module
        elif isinstance(module, kinds) and not name.endswith(".base_layer"):
            inside = network.layer_of(f"{name}.weight") is not None
            targets = network.whole or name.rpartition(".")[2] in TARGETS
            if inside and targets and name not in network.uncalled:
                found[name] = module
    return found


TARGETS = ("qkv", "out", "gate_up", "down")  # of resident networks


def sizes_of(layer: nn.Module) -> tuple[int, int]:
    """Return the numbers of outputs and inputs of a linear layer."""
    if isinstance(layer, (QuantisedLinear, *PACKED)):
        return layer.out_features, layer.in_features
    weight: Any = layer.weight
    outputs, inputs = weight.shape if isinstance(layer, nn.Linear) else reversed(weight.shape)
    return outputs, inputs
