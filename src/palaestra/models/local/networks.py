"""The network of a checkpoint folder: the resident one, or transformers' own code around it.

The resident network runs the types of `model_types`, and runs them fastest. All other causal
language models run by their own code: over our cache, if their attention can be replaced
(`transformers_network`), else over their own (`own_cache_network`). A known type with a trait that
the resident network does not know is refused by name, unless transformers is asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import torch

from palaestra.core.errors import InputError
from palaestra.models.local.checkpoint_files import sees
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.model_types import MODEL_TYPES, read_config
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.quantisation import Quantisation

Backend = Literal["auto", "resident", "transformers"]
"""Whose code runs a model; `auto`: the resident network's, where it knows the type."""


def runs_resident(folder: Path, backend: Backend = "auto") -> bool:
    """Return whether the resident network runs a checkpoint, rather than transformers."""
    return backend == "resident" or (backend == "auto" and not _foreign(folder))


def check_network(folder: Path, backend: Backend = "auto") -> None:
    """Check the architecture of a checkpoint; load nothing.

    Raises:
        InputError: it cannot run here.
    """
    if runs_resident(folder, backend):
        read_config(folder)
        return
    from palaestra.models.local.own_cache_network import check

    check(folder)
    if sees(folder):
        from palaestra.models.local.image_reader import image_reader

        image_reader(folder)


def load_network(
    folder: Path,
    dtype: torch.dtype,
    backend: Backend = "auto",
    quantisation: Quantisation | None = None,
    *,
    acts_only: bool = False,
) -> DecoderNetwork:
    """Load the network of a checkpoint, in `dtype`, with its linear layers quantised or not.

    With `acts_only`, it need not learn or be saved; see `read_network`.

    Raises:
        InputError: it cannot run here, or files are missing or damaged.
    """
    check_quantisation(folder, quantisation, backend)
    if runs_resident(folder, backend):
        return read_network(folder, dtype, quantisation, acts_only=acts_only)
    from palaestra.models.local.own_cache_network import load

    return load(folder, dtype)


def check_quantisation(
    folder: Path, quantisation: Quantisation | None, backend: Backend = "auto"
) -> None:
    """Raise InputError if a checkpoint is to be quantised, and transformers' code would run it."""
    if quantisation is not None and not runs_resident(folder, backend):
        raise InputError(
            f"The model in '{folder}' runs by transformers' own code, whose weights cannot be "
            f"quantised to {quantisation} here; leave that out, or take a model of a type that "
            "palaestra knows (docs/model_families.md)."
        )


def blank_network(folder: Path, dtype: torch.dtype, backend: Backend = "auto") -> DecoderNetwork:
    """Return the network of a checkpoint without weights, on the device "meta"."""
    if not runs_resident(folder, backend):
        from palaestra.models.local.own_cache_network import blank

        return blank(folder, dtype)
    with torch.device("meta"):
        return DecoderNetwork(read_config(folder)).to(dtype)


def way_of(network: DecoderNetwork) -> str:
    """Return whose code and whose cache run a network, in words."""
    if not network.whole:
        return "resident"
    return "transformers, its own cache" if network.own_cache else "transformers, shared cache"


def save_network(network: DecoderNetwork, folder: Path) -> None:
    """Write `config.json` and the weights, as transformers and `load_network` read them."""
    if not network.whole:
        write_network(network, folder)
        return
    from palaestra.models.local.transformers_network import TransformersNetwork

    assert isinstance(network, TransformersNetwork)
    network.save(folder)


def longest_context(folder: Path, backend: Backend = "auto") -> int:
    """Return the tokens of the longest sequence that a model was made for."""
    if runs_resident(folder, backend):
        return read_config(folder).max_position_embeddings
    from palaestra.models.local.transformers_network import longest_context as longest

    return longest(folder)


def _foreign(folder: Path) -> bool:
    """Return whether `config.json` names a type that the resident network does not know."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # `read_config` says what is wrong with it
    name = data.get("model_type") if isinstance(data, dict) else None
    return isinstance(name, str) and name not in MODEL_TYPES
