"""Writing a policy with a router, so that it acts outside of its run as within."""

from __future__ import annotations

import shutil
from pathlib import Path

from palaestra.models.call_router import CallRouter
from palaestra.models.local.adapter_config import CONFIG, WEIGHTS
from palaestra.models.local.adapter_files import exportable, write_adapter
from palaestra.models.local.lora import merged
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import save_network
from palaestra.models.local.routed_files import BASE, place_of_adapter, write_router
from palaestra.training.recipe import Recipe
from palaestra.training.role_adapters import acting_adapters, frozen_adapter


def export_routed(
    network: DecoderNetwork, router: CallRouter, recipe: Recipe, folder: Path
) -> list[Path]:
    """Write the router, the base without adapters, and all adapters (see `routed_files`).

    Adapters of experts have no form in files: then the router alone is written, and loading
    the policy is refused.

    Args:
        network: has the adapters.
        router: chooses among them.
        recipe: of the run.
        folder: of the policy.

    Returns:
        The folder of the base, which still lacks a tokenizer; none if it was not written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not exportable(network):
        write_router(folder, router, {})
        return []
    base, _, _ = recipe.model.name.partition("?")
    acting = acting_adapters(recipe)
    for role, adapter in acting.items():
        own, kept = folder / place_of_adapter(role), frozen_adapter(recipe, role)
        if kept is not None:
            own.mkdir(parents=True)
            for file in (CONFIG, WEIGHTS):
                shutil.copy(kept / file, own)
        elif adapter is not None:
            write_adapter(network, adapter, own, base)
    save_network(merged(network, None), folder / BASE)
    write_router(folder, router, {role: adapter is not None for role, adapter in acting.items()})
    return [folder / BASE]
