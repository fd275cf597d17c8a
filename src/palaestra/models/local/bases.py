"""Local models that act: loaded into this process, with their adapters on one base."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakValueDictionary

import torch

from palaestra.core.model import Model, adapted
from palaestra.models.call_router import RoutedModel, is_cluster
from palaestra.models.local.adapter_config import identity
from palaestra.models.local.adapter_files import read_adapter
from palaestra.models.local.checkpoint_files import StoredTensors
from palaestra.models.local.lora import OWN, add_adapter
from palaestra.models.local.networks import load_network, way_of
from palaestra.models.local.quantisation import Quantisation
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.routed_files import AGENT, RoutedFiles
from palaestra.models.local.weights import Checkpoint


class LoadedBases:
    """The bases that are in use; each is held once, whatever adapters it has."""

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[Path, Quantisation | None, bool], ResidentModel] = (
            WeakValueDictionary()
        )

    def load(
        self, name: str, found: Checkpoint, *, slots: int, context: int, keep_thoughts: bool
    ) -> Model:
        """Return the model of a checkpoint, on a base that is loaded already if there is one.

        Args: see `load_resident`; slots and context hold for a base that is loaded now.

        Raises:
            InputError: see `load_resident`.
        """
        key = (found.folder, found.quantise, keep_thoughts)
        base = self._models.get(key)
        general: Model
        if base is None:
            general = base = self._models[key] = load_resident(
                name, found, slots=slots, context=context, keep_thoughts=keep_thoughts
            )
        else:
            general = base.beside(name, _add(base, found.adapter))
        return general if found.routed is None else _routed(name, base, general, found.routed)


def load_resident(
    name: str, found: Checkpoint, *, slots: int, context: int, keep_thoughts: bool = False
) -> ResidentModel:
    """Load a checkpoint, and its adapter if it has one, into this process; no router.

    It computes in the precision that `auto` selects, except that weights stored in
    fp32 are never rounded: a policy acts as it did when its training ended.

    Args:
        name: in recorded calls.
        found: the checkpoint.
        slots: conversations at once.
        context: longest conversation in tokens, if the model's own is longer.
        keep_thoughts: see `renderer_of`.

    Raises:
        InputError: the architecture is not supported, the checkpoint is damaged, or the adapter is
            of another base.
    """
    from palaestra.models.local.devices import device, precision
    from palaestra.models.registry import renderer_of

    target, stored = device("auto"), StoredTensors(found.folder).number_formats
    dtype = torch.float32 if stored == {"F32"} else precision("auto", target)
    with ThreadPoolExecutor(1) as beside:  # a large tokenizer takes as long as the weights
        renderer = beside.submit(renderer_of, found.folder, keep_thoughts=keep_thoughts)
        here = target.type == "cpu"
        network = load_network(found.folder, dtype, quantisation=found.quantise, acts_only=here).to(
            target
        )
    longest = min(context, network.config.max_position_embeddings)
    model = ResidentModel(name, network, renderer.result(), slots=slots, context=longest)
    if found.adapter is not None:
        model.adapter = _add(model, found.adapter)
    return model


def _routed(name: str, base: ResidentModel, general: Model, files: RoutedFiles) -> RoutedModel:
    """Return the model of a policy with a router, whose adapters are added to its base."""
    beside: dict[str, Model] = {
        role: base.beside(adapted(name, role), _add(base, folder))
        for role, folder in files.adapters.items()
        if role != AGENT
    }
    clusters = {role: model for role, model in beside.items() if is_cluster(role)}
    roles = {role: model for role, model in beside.items() if not is_cluster(role)}
    return RoutedModel(files.router, clusters, general, roles)


def runs_by(model: Model) -> str:
    """Return whose code and whose cache run a model that was loaded here, in words."""
    base = model.host
    assert isinstance(base, ResidentModel)
    return way_of(base.network)


def _add(model: ResidentModel, folder: Path | None) -> str:
    """Add an adapter to a model's network, unless it has it; return its name there.

    Without a folder, return the name that stands for the base alone.
    """
    if folder is None:
        return OWN  # which a network that was loaded does not have
    name = f"file_{identity(folder)[:12]}"
    if name not in model.adapters:
        model.adapters.add(name)
        add_adapter(model.network, name, read_adapter(folder, model.network))
        model.engine.clear()
    return name
