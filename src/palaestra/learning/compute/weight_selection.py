"""Which weights are trained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from palaestra.core.errors import RecipeError
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import check_whole


@dataclass(frozen=True, slots=True)
class Selection:
    """The trained parameters by name; all others do not require gradients."""

    parameters: dict[str, nn.Parameter]
    frozen_layers: int  # number of lowest layers that need no backward pass
    adapters: frozenset[str] = frozenset()  # names of the trained ones; empty: none is trained
    beside: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """Adapters that stay as they are and are saved with the trained ones."""


def everything(network: DecoderNetwork) -> Selection:
    """Select all weights (full fine-tuning).

    Raises:
        InputError: the network was loaded to act only.
    """
    return _select(network, lambda name: True, 0)


def top_layers(network: DecoderNetwork, count: int) -> Selection:
    """Select the upper `count` layers and the final norm; the embedding (a tied head too) freezes.

    Raises:
        RecipeError: the network has fewer layers.
        InputError: the network was loaded to act only.
    """
    depth = network.depth
    if count > depth:
        raise RecipeError(
            f"training.top_layers = {count}, but the model has {depth} layers; "
            f"use a number from 1 to {depth}."
        )
    frozen = depth - count

    def upper(name: str) -> bool:
        layer = network.layer_of(name)
        return layer is not None and layer >= frozen

    return _select(network, upper, 0 if network.whole else frozen)


def adapters(
    network: DecoderNetwork, names: Collection[str] = (OWN,), *, beside: Collection[str] = ()
) -> Selection:
    """Select LoRA adapters by their names in the network; its others stay as they are.

    Args:
        network: has the adapters.
        names: of those that are trained.
        beside: names of those that are saved with them.

    Raises:
        InputError: the network was loaded to act only, so no gradient passes its matrices.
    """
    chosen = _select(network, lambda name: _is_of(name, names), 0)
    others = {name: p for name, p in network.named_parameters() if _is_of(name, beside)}
    return replace(chosen, adapters=frozenset(names), beside=others)


def _is_of(parameter: str, adapters: Collection[str]) -> bool:
    return "lora_" in parameter and parameter.rpartition(".")[2] in adapters


def _select(network: DecoderNetwork, on: Callable[[str], bool], frozen: int) -> Selection:
    check_whole(network)
    chosen: dict[str, nn.Parameter] = {}
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(on(name))
        if on(name):
            chosen[name] = parameter
    return Selection(chosen, frozen)
