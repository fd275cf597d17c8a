"""LoRA adapters in files, as peft writes and reads them.

A folder with `adapter_config.json` and `adapter_model.safetensors`. Where the resident network
holds several of a checkpoint's matrices as one (queries, keys and values; gate and up), an
adapter of the checkpoint becomes one of the joined matrix: its A's one below the other, its B's
along the diagonal. Ours shares one A, so each of peft's layers gets a copy of it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.models.local.adapter_config import CONFIG, WEIGHTS, AdapterConfig
from palaestra.models.local.checkpoint_files import StoredTensors
from palaestra.models.local.checkpoint_format import row_order, split_rows, weight_of
from palaestra.models.local.lora import Factors, adapter_of, linear_layers, sizes_of
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import blank_network
from palaestra.models.local.quantisation import Quantisation

_PREFIX = "base_model.model."


def check_base(folder: Path, base: Path, quantisation: Quantisation | None = None) -> None:
    """Check that an adapter fits the checkpoint in `base`, without loading that.

    Args:
        folder: of the adapter.
        base: of the checkpoint.
        quantisation: of its linear layers, once it is loaded.

    Raises:
        InputError: see `read_adapter`.
    """
    network = blank_network(base, torch.float32)
    network.quantisation = quantisation
    if not network.whole:
        theirs = StoredTensors(base)
        for name, weight in list(network.named_parameters()):
            if weight.dim() == 1:
                place, _, own = name.rpartition(".")
                read = weight_of(name, theirs, network.config).float()
                setattr(network.get_submodule(place), own, nn.Parameter(read))
    read_adapter(folder, network)


def read_adapter(folder: Path, network: DecoderNetwork) -> dict[str, Factors]:
    """Return an adapter of the network, by its layers (see `lora.add_adapter`).

    Raises:
        InputError: it cannot be read, or it is of another base.
    """
    config, (tensors, about) = AdapterConfig.read(folder), _read_tensors(folder / WEIGHTS)
    base, quantised = about.get("base", ""), about.get("quantisation")
    if quantised not in (None, network.quantisation):  # else left out of the name, most likely
        raise InputError(
            f"The adapter '{folder}' was trained on a base in {quantised}, and this one is in "
            f"{network.quantisation or 'full precision'}; add quantise={quantised} to the model's "
            "name, or in a recipe model.quantise."
        )
    if base not in ("", fingerprint(network) or base):
        raise InputError(
            f"The adapter '{folder}' was trained on another base than this model; name the model "
            "that it was trained on."
        )
    found = {}
    for place, layer in linear_layers(network).items():
        sizes = sizes_of(getattr(layer, "base_layer", layer))
        factors = _joined(network, place, sizes, tensors, config.scale)
        if factors is not None:
            found[place] = factors
    if tensors:
        raise InputError(
            f"The adapter '{folder}' changes '{min(tensors)}', which this model lacks or cannot "
            "adapt; name the model that it was trained on."
        )
    return found


def write_adapter(network: DecoderNetwork, name: str, folder: Path, base: str) -> None:
    """Write an adapter of the network.

    Args:
        network: has the adapter.
        name: of the adapter.
        folder: created if missing.
        base: the name of the model, for those who load it.
    """
    from safetensors.torch import save_file

    adapter = adapter_of(network, name)
    tensors: dict[str, Tensor] = {}
    for place, factors in adapter.items():
        for theirs, up in _theirs(network, place, factors.up).items():
            tensors[f"{theirs}.lora_A.weight"] = factors.down.clone()
            tensors[f"{theirs}.lora_B.weight"] = up.contiguous()
    ranks = {len(factors.down) for factors in adapter.values()}
    scales = {factors.scale for factors in adapter.values()}
    assert len(ranks) == len(scales) == 1  # one that was trained here
    (rank,), (scale,) = ranks, scales
    targets = {key.removesuffix(".lora_A.weight") for key in tensors if "lora_A" in key}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank * scale,
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "target_modules": sorted({one.rpartition(".")[2] for one in targets}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    metadata = {"format": "pt", "base": fingerprint(network)}
    if network.quantisation is not None:
        metadata["quantisation"] = network.quantisation
    save_file(tensors, folder / WEIGHTS, metadata=metadata)


def exportable(network: DecoderNetwork) -> bool:
    """Return whether peft can hold an adapter of all layers: it cannot hold one of experts."""
    return not any("experts" in place for place in linear_layers(network))


def fingerprint(network: DecoderNetwork) -> str:
    """Return a hash of the norms' weights, by which an adapter recognises its base.

    They are rounded to bf16, so that it does not depend on the number format. A network without
    weights has none.
    """
    digest = hashlib.sha256()
    named = {n.replace(".base_layer", ""): p for n, p in network.named_parameters()}
    for _, weight in sorted(named.items()):
        if weight.dim() == 1:
            if weight.is_meta:
                return ""
            digest.update(weight.detach().bfloat16().cpu().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def _theirs(network: DecoderNetwork, place: str, up: Tensor) -> dict[str, Tensor]:
    """Return the rows of B by the names of peft's layers."""
    if network.whole:
        return {_PREFIX + place.removeprefix("model."): up}
    parts = split_rows(f"{place}.weight", up, network.config)
    return {_PREFIX + name.removesuffix(".weight"): rows for name, rows in parts.items()}


def _joined(
    network: DecoderNetwork,
    place: str,
    sizes: tuple[int, int],
    tensors: dict[str, Tensor],
    scale: float,
) -> Factors | None:
    """Take a layer's factors from the tensors; None if they have none of it.

    Raises:
        InputError: they do not fit the layer.
    """
    outputs, inputs = sizes
    rows = {n: len(part) for n, part in _theirs(network, place, torch.empty(outputs, 0)).items()}
    pairs = {name: _pair(name, tensors) for name in rows}
    if not any(pairs.values()):
        return None
    downs, ups = [], []
    for name, count in rows.items():
        down, up = pairs[name] or (torch.zeros(0, inputs), torch.zeros(count, 0))
        if down.shape[1] != inputs or len(up) != count or len(down) != up.shape[1]:
            raise InputError(
                f"The adapter's '{name}' is of shape {tuple(up.shape)} x {tuple(down.shape)}, and "
                f"the model's of {count} x {inputs}; name the model that it was trained on."
            )
        downs.append(down)
        ups.append(up)
    first = downs[0]
    if len(pairs) > 1 and all(torch.equal(first, other) for other in downs[1:]):
        joined = Factors(first, torch.cat(ups), scale)
    else:
        joined = Factors(torch.cat(downs), torch.block_diag(*ups), scale)
    order = None if network.whole else row_order(f"{place}.weight", network.config)
    return joined if order is None else Factors(joined.down, joined.up[order], scale)


def _pair(name: str, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    keys = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
    if not all(key in tensors for key in keys):
        return None
    down, up = (tensors.pop(key) for key in keys)
    return down, up


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, and what `write_adapter` noted about the base."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            return tensors, opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"The file '{file}' is truncated or damaged ({error}); download or save it again."
        ) from error
