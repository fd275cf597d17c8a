"""Which weights are trained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

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


def adapters(network: DecoderNetwork, names: Collection[str] = (OWN,)) -> Selection:
    """Select LoRA adapters by their names in the network; its others stay as they are.

    Raises:
        InputError: the network was loaded to act only, so no gradient passes its matrices.
    """
    return _select(network, lambda name: "lora_" in name and name.rpartition(".")[2] in names, 0)


def _select(network: DecoderNetwork, on: Callable[[str], bool], frozen: int) -> Selection:
    check_whole(network)
    chosen: dict[str, nn.Parameter] = {}
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(on(name))
        if on(name):
            chosen[name] = parameter
    return Selection(chosen, frozen)
