"""Hugging Face checkpoints, to and from `DecoderNetwork`.

Each weight is one or more tensors of the checkpoint, as they are or with their rows in another
order (`tensor_names.py`, `rotary.feature_order`), so what was read is written back bit for bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from palaestra.core.errors import InputError
from palaestra.core.paths import set_default_permissions
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.checkpoint_files import StoredTensors
from palaestra.models.local.lora import linear_layers
from palaestra.models.local.model_types import read_config, write_config
from palaestra.models.local.mxfp4 import expert_of, plain_names
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import (
    WORTHWHILE,
    check_whole,
    multiplies_packed,
    packed_layers,
)
from palaestra.models.local.quantisation import Quantisation
from palaestra.models.local.quantised import QuantisedLinear
from palaestra.models.local.rotary import feature_order
from palaestra.models.local.tensor_names import HEAD, USELESS, place_of

BATCH = 2**28
"""Bytes of weights that are packed in one call: until it ends, they are mapped besides their copy.
Between calls Python waits for a thread that reads a tokenizer."""


def read_network(
    folder: Path,
    dtype: torch.dtype,
    quantisation: Quantisation | None = None,
    *,
    acts_only: bool = False,
) -> DecoderNetwork:
    """Load the network of a checkpoint folder, in `dtype`.

    Layers are quantised one after the other, from their stored numbers: no more than one of them
    is held as it was.

    Args:
        folder: of the checkpoint.
        dtype: of the network.
        quantisation: of its blocks' linear layers; None: they stay as they are.
        acts_only: on a CPU, hold large matrices only as the engine multiplies them, packed straight
            from the files where that pays. Such a network cannot learn or be saved.

    Raises:
        InputError: the architecture is not known, has other tensors than the checkpoint, or files
            are missing or damaged.
    """
    config = read_config(folder)
    theirs = StoredTensors(folder)
    with torch.device("meta"), _Unfilled():
        network = DecoderNetwork(config)
    check_names(network, theirs, folder)
    if quantisation is not None:
        for place, layer in linear_layers(network).items():
            name = f"{place}.weight"
            weight = weight_of(name, theirs, config)
            _check_shape(name, weight, layer.weight, config, folder)
            network.set_submodule(place, QuantisedLinear(weight, quantisation))
        network.quantisation = quantisation
    elif acts_only:
        _pack(network, theirs, dtype, folder)
    ours = from_hugging_face(network, theirs, dtype)
    for name, wanted in network.named_parameters():
        _check_shape(name, ours[name], wanted, config, folder)
    network.load_state_dict(ours, strict=False, assign=True)  # codes and scales are there already
    return network


def _pack(
    network: DecoderNetwork, theirs: Mapping[str, Tensor], dtype: torch.dtype, folder: Path
) -> None:
    """Replace the network's large linear layers by packed ones, a batch of them at a time."""
    layers: dict[str, Any] = dict(linear_layers(network))
    if network.head is not None:
        layers["head"] = network.head
    batch: dict[str, list[Tensor]] = {}
    for place, layer in layers.items():
        outputs, inputs = layer.weight.shape
        if outputs * inputs < WORTHWHILE or not multiplies_packed(dtype, inputs):
            continue
        name = f"{place}.weight"
        parts = parts_of(name, theirs, network.config)
        whole = torch.empty(sum(map(len, parts)), *parts[0].shape[1:], device="meta")
        _check_shape(name, whole, layer.weight, network.config, folder)
        narrow = all(part.dtype is torch.bfloat16 for part in parts)
        batch[place] = parts if narrow else [part.to(dtype) for part in parts]
        if sum(part.nbytes for parts in batch.values() for part in parts) >= BATCH:
            _pack_batch(network, batch, dtype)
            batch = {}
    _pack_batch(network, batch, dtype)


def _pack_batch(
    network: DecoderNetwork, batch: Mapping[str, list[Tensor]], dtype: torch.dtype
) -> None:
    """Replace the layers at some places by packed ones with these weights."""
    for place, layer in zip(batch, packed_layers(list(batch.values()), dtype), strict=True):
        network.set_submodule(place, layer)


def _check_shape(
    name: str, weight: Tensor, wanted: Any, config: NetworkConfig, folder: Path
) -> None:
    """Raise InputError if a weight is not of the shape that the network wants."""
    if weight.shape != wanted.shape:
        where = ", ".join(place_of(name, config.model_type).names)
        raise InputError(
            f"The checkpoint in '{folder}' holds {_sizes(weight)} numbers in '{where}', "
            f"where its config.json means {_sizes(wanted)}; take both from the same model."
        )


class _Unfilled(TorchFunctionMode):
    """A mode in which parameters get no initial values.

    Random numbers on the device `meta` make torch import its compiler, which takes 1.2 s: as long
    as reading a gigabyte of weights.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


def write_network(network: DecoderNetwork, folder: Path) -> None:
    """Write `model.safetensors` and `config.json` as transformers reads them.

    Raises:
        InputError: the network was loaded to act only.
    """
    from safetensors.torch import save_file

    check_whole(network)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(network.config, folder)
    tensors = {name: t.contiguous() for name, t in to_hugging_face(network).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    set_default_permissions(folder / "model.safetensors")


def check_names(network: DecoderNetwork, theirs: Mapping[str, Tensor], folder: Path) -> None:
    """Raise InputError where the network and a checkpoint have different tensors."""
    model_type, ours = network.config.model_type, network.state_dict()
    places = [place_of(own, model_type) for own in ours]
    wanted = {name for place in places for name in place.names}
    given = plain_names(theirs, {p.names[0] for p in places if p.expert is not None})
    missing = sorted(wanted - given)
    unknown = sorted(n for n in given - wanted if n != HEAD and not USELESS.search(n))
    for names, what in ((missing, "has no"), (unknown, "has, unlike its architecture,")):
        if names:
            raise InputError(
                f"The checkpoint in '{folder}' {what} tensor '{names[0]}'"
                f"{f' and {len(names) - 1} others' if len(names) > 1 else ''}; "
                "save the model again with save_pretrained."
            )


def from_hugging_face(
    network: DecoderNetwork, theirs: Mapping[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return the network's parameters, in `dtype`, made of a checkpoint's tensors."""
    config = network.config
    return {
        name: weight_of(name, theirs, config).to(dtype).contiguous()
        for name, _ in network.named_parameters()
    }


def to_hugging_face(network: DecoderNetwork) -> dict[str, Tensor]:
    """Return a checkpoint's tensors, made of the network's weights."""
    config, theirs = network.config, dict[str, Tensor]()
    experts: defaultdict[str, list[Tensor]] = defaultdict(list)
    for name, tensor in network.state_dict().items():
        weight, place = tensor.detach(), place_of(name, config.model_type)
        if place.expert is not None:
            experts[place.names[0]].append(_transposed(_alternating(weight, name)))
        else:
            theirs |= split_rows(name, weight, config)
    return theirs | {name: torch.stack(parts) for name, parts in experts.items()}


def split_rows(name: str, rows: Tensor, config: NetworkConfig) -> dict[str, Tensor]:
    """Return the rows of one weight by the checkpoint's tensors that hold them, in their order.

    Args:
        name: of the weight; not one that a checkpoint holds for all experts.
        rows: the weight, or anything else with its rows.
        config: of the network.
    """
    names, order = place_of(name, config.model_type).names, row_order(name, config)
    rows = rows if order is None else rows[order.argsort()]
    if len(names) == 1:
        return {names[0]: rows}
    sizes = _rows(name, config, len(names), len(rows))
    return dict(zip(names, rows.split(sizes), strict=True))


def _sizes(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def weight_of(name: str, theirs: Mapping[str, Tensor], config: NetworkConfig) -> Tensor:
    """Return one weight of the network, made of a checkpoint's tensors."""
    parts = parts_of(name, theirs, config)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def parts_of(name: str, theirs: Mapping[str, Tensor], config: NetworkConfig) -> list[Tensor]:
    """Return the rows of one weight of the network in parts, mapped as they are where possible."""
    place = place_of(name, config.model_type)
    if place.expert is not None:
        stacked = _transposed(expert_of(theirs, place.names[0], place.expert))
        return [stacked[::2], stacked[1::2]] if "gate_up" in name else [stacked]
    parts, order = [theirs[one] for one in place.names], row_order(name, config)
    return parts if order is None else [torch.cat(parts)[order]]


def _transposed(weight: Tensor) -> Tensor:
    """Return a matrix transposed, a bias as it is."""
    return weight.T if weight.dim() == 2 else weight


def _alternating(weight: Tensor, name: str) -> Tensor:
    """Return the rows of gate and up in turn; other weights as they are."""
    if "gate_up" not in name:
        return weight
    gate, up = weight.chunk(2)
    return torch.stack([gate, up], dim=1).flatten(0, 1)


def _rows(name: str, config: NetworkConfig, parts: int, rows: int) -> list[int]:
    """Return the numbers of rows of a weight's tensors."""
    if parts == 2:
        return [rows // 2, rows // 2]
    keys = config.num_key_value_heads * config.head_dim
    return [rows - 2 * keys, keys, keys]


def row_order(name: str, config: NetworkConfig) -> Tensor | None:
    """Return which row of the checkpoint each row of a weight is; None: the same."""
    rotary = next((t.rotary for t in config.layers if t.rotary.share), None)
    own = name.rsplit(".", 1)[-1] if name.endswith("_norm") else name.split(".", 2)[-1]
    features = feature_order(rotary, config.head_dim) if rotary is not None else None
    if features is None or own not in ("qkv.weight", "qkv_bias", "q_norm", "k_norm"):
        return None
    heads = config.num_attention_heads, config.num_key_value_heads
    turned = {"q_norm": heads[0], "k_norm": heads[1]}.get(own, sum(heads))
    if own.endswith("_norm") and config.head_norm == "head":
        turned = 1
    d = config.head_dim
    order = [head * d + feature for head in range(turned) for feature in features]
    rest = range(turned * d, (sum(heads) + heads[1]) * d) if own.startswith("qkv") else ()
    return torch.tensor([*order, *rest])
