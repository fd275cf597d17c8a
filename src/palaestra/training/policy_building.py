"""Building the policy of a recipe, and exporting it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from palaestra.core.errors import InputError
from palaestra.core.model import Renderer
from palaestra.learning.compute.weight_selection import Selection, adapters, everything, top_layers
from palaestra.learning.critics.value_head import ValueHead
from palaestra.models.call_router import CallRouter
from palaestra.models.local.adapter_files import exportable, write_adapter
from palaestra.models.local.devices import device, precision
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.lora import merged, quantise
from palaestra.models.local.model_cache import Progress
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import blank_network, load_network, save_network
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.registry import (
    check_context,
    checked_checkpoint,
    renderer_of,
)
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.chatml import CHATML_TEMPLATE, END, ChatMLRenderer
from palaestra.runtime.machine import torch_threads
from palaestra.training.recipe import Recipe
from palaestra.training.recipe_sections import Tiny
from palaestra.training.role_adapters import AGENT, POLICY, add_adapters, learning, names
from palaestra.training.router_export import export_routed
from palaestra.training.sight import check_sight

Valued = tuple[DecoderNetwork, ValueHead]
"""A critic: a network, and the head that reads values from its last hidden states."""


def prepare_policy(recipe: Recipe, progress: Progress) -> dict[str, str | None]:
    """Download, convert and check the model of a recipe, and its roles' adapters; load nothing.

    Returns:
        Their revisions by name (see `weights.Checkpoint`); empty for the tiny transformer.

    Raises:
        InputError: one cannot be had or used, the model's context is shorter than the recipe's, or
            the model reads text only and the environment shows images.
    """
    part = recipe.model
    if part.name == "tiny":
        return {}
    found = checked_checkpoint(part.name, progress, backend=part.backend, quantise=part.quantise)
    check_context(part.name, found.folder, part.context, "model.context", part.backend)
    check_sight(recipe)
    revisions = {part.name: found.revision}
    for name in names(recipe).values():
        revisions[name] = checked_checkpoint(name, progress, backend=part.backend).revision
    if recipe.training.lora_rank is not None:
        with torch.device("meta"):
            network = blank_network(found.folder, torch.float32, part.backend)
            if part.quantise is not None:
                quantise(network, part.quantise)
            add_adapters(network, recipe)
    return revisions


def checked_origin(recipe: Recipe, recorded: Mapping[str, str | None], progress: Progress) -> Path:
    """Return the checkpoint folder that a recipe's model begins with; not for the tiny transformer.

    Args:
        recipe: names it, and its roles' adapters, which are checked too.
        recorded: revisions that the run has used so far, by name.
        progress: receives messages.

    Raises:
        InputError: one cannot be had, or is of another revision.
    """
    for own in names(recipe).values():
        checked_checkpoint(own, progress, recorded.get(own))
    name = recipe.model.name
    quantise = recipe.model.quantise
    return checked_checkpoint(name, progress, recorded.get(name), quantise=quantise).folder


def prepare_torch(recipe: Recipe) -> None:
    """Set torch's threads, and let it compute as a deterministic recipe needs."""
    torch.set_num_threads(torch_threads())
    if recipe.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA devices require it
        torch.use_deterministic_algorithms(True)


def build_policy(recipe: Recipe, origin: Path) -> ResidentModel:
    """Build the resident model of a recipe.

    Args:
        recipe: what to build.
        origin: a checkpoint folder; for the tiny transformer, the folder with its tokenizer.
    """
    part = recipe.model
    renderer, target = renderer_of(origin, keep_thoughts=part.keep_thoughts), device(part.device)
    if recipe.agent.reasoning_tokens is not None and not renderer.thought_end:
        raise InputError(
            f"agent.reasoning_tokens = {recipe.agent.reasoning_tokens} has no effect on "
            f"'{part.name}', whose chat template has no reasoning; unset it."
        )
    if part.name == "tiny":
        network = _tiny(recipe, origin, renderer)
        if part.quantise is not None:
            quantise(network, part.quantise)
    else:
        check_context(part.name, origin, part.context, "model.context", part.backend)
        dtype = precision(part.precision, target)
        network = load_network(origin, dtype, part.backend, part.quantise)
    network = network.to(target)
    if recipe.training.lora_rank is not None:
        add_adapters(network, recipe)
    return ResidentModel(
        POLICY,
        network,
        renderer,
        slots=slots_of(recipe),
        context=recipe.model.context,
        schedule=recipe.model.schedule,
        on_update=OnUpdate(recipe.rl.on_update or "drain"),
        lockstep=recipe.deterministic,
    )


def write_vocabulary(recipe: Recipe, tokenizer: Tokenizer, folder: Path) -> None:
    """Write what the tiny transformer needs besides its weights: see `build_policy`."""
    tiny = recipe.model.tiny or Tiny()
    if tiny.vision is None:
        save_tokenizer(tokenizer, folder)
        return
    from palaestra.models.local.tiny_seeing import Sight, Sizes, write_tiny_seeing

    sizes = Sizes(tiny.layers, tiny.width, tiny.heads, recipe.model.context)
    write_tiny_seeing(folder, tokenizer, sizes, Sight(**tiny.vision.model_dump()))


def _tiny(recipe: Recipe, origin: Path, renderer: Renderer) -> DecoderNetwork:
    """Return the tiny transformer with new weights; `origin` has what `write_vocabulary` wrote."""
    tiny = recipe.model.tiny or Tiny()
    if tiny.vision is not None:
        from palaestra.models.local.tiny_seeing import tiny_seeing

        return tiny_seeing(origin, recipe.seed)
    assert isinstance(renderer, ChatMLRenderer)  # of the vocabulary learned here
    return tiny_network(
        renderer.tokenizer.get_vocab_size(),
        **tiny.model_dump(exclude={"vision"}),
        context=recipe.model.context,
        seed=recipe.seed,
    )


def slots_of(recipe: Recipe) -> int:
    """Return the number of replies that the policy generates concurrently."""
    return recipe.model.slots or recipe.concurrency + 2


def selection(
    model: ResidentModel, recipe: Recipe, roles: Sequence[str] | None = None
) -> Selection:
    """Return the weights that the recipe trains.

    Args:
        model: of the recipe.
        recipe: of the run.
        roles: with LoRA, those whose adapters are trained now; None: all that the recipe trains.
    """
    match recipe.training.weights:
        case "full":
            return everything(model.network)
        case "top":
            assert recipe.training.top_layers is not None
            return top_layers(model.network, recipe.training.top_layers)
        case "lora":
            every, now = learning(recipe).values(), learning(recipe, roles).values()
            beside = [name for name in every if name not in now]
            return adapters(model.network, tuple(now), beside=beside)


def state_of(model: ResidentModel) -> dict[str, Any]:
    """Return what belongs to a version of the policy beside its weights, as JSON."""
    router = {} if model.router is None else {"router": model.router.document()}
    return {"version": model.version, **router}


def put_state(model: ResidentModel, state: Mapping[str, Any]) -> None:
    """Put what `state_of` returned into the policy."""
    model.version = state["version"]
    router = state.get("router")
    model.router = None if router is None else CallRouter.read(router)


def export(model: ResidentModel, recipe: Recipe, folder: Path) -> None:
    """Write the policy as a Hugging Face checkpoint that transformers and palaestra can load.

    The agent's adapter is merged there, with the dequantised weights of a quantised base. Adapters
    that learned are also written apart, as peft loads them: the agent's into the folder `adapter`,
    those of other roles into `adapters`. Not written apart are those of experts, which peft has no
    form for, and those whose base was made in this run. A policy with a router is written with its
    base and all adapters, see `export_routed`.
    """
    checkpoints = [folder]
    if model.router is not None:
        checkpoints += export_routed(model.network, model.router, recipe, folder)
    elif recipe.model.name != "tiny" and exportable(model.network):
        base, _, _ = recipe.model.name.partition("?")
        for role, adapter in learning(recipe).items():
            own = folder / "adapter" if role == AGENT else folder / "adapters" / role
            write_adapter(model.network, adapter, own, base)
    save_network(whole(model.network, recipe), folder)
    for written in checkpoints:
        _write_renderer(model, written)


def _write_renderer(model: ResidentModel, folder: Path) -> None:
    """Write the tokenizer, the chat template and the tokens that end a reply."""
    if isinstance(model.renderer, ChatMLRenderer):
        save_tokenizer(model.renderer.tokenizer, folder, model.renderer.chat_template)
    else:
        assert isinstance(model.renderer, TemplateRenderer)
        model.renderer.save(folder)
    stop = {"eos_token_id": sorted(model.renderer.end_tokens)}
    (folder / "generation_config.json").write_text(json.dumps(stop) + "\n")


def export_critic(critic: Valued, recipe: Recipe, folder: Path, policy: Path) -> None:
    """Write the critic as a scorer for searches (see `models.local.scoring`).

    Args:
        critic: trained beside the policy.
        recipe: of the run.
        folder: created if missing.
        policy: folder of the exported policy, whose tokenizer the critic shares.
    """
    from palaestra.models.local.scoring import save_value

    network, head = critic
    save_value(folder, whole(network, recipe), dict(head.named_parameters()), policy)


def whole(network: DecoderNetwork, recipe: Recipe) -> DecoderNetwork:
    """Return the network with its adapters merged, if it has any."""
    if recipe.training.weights != "lora":
        return network
    return merged(network)


def save_tokenizer(
    tokenizer: Tokenizer, folder: Path, chat_template: str = CHATML_TEMPLATE
) -> None:
    """Write `tokenizer.json` and the chat template, as transformers reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
