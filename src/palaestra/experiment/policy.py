"""From a recipe to the policy that acts and learns."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from palaestra.core.errors import InputError
from palaestra.experiment.recipe import Recipe
from palaestra.experiment.sections import Tiny
from palaestra.learning.critics.value import ValueHead
from palaestra.learning.selection import Selection, adapters, everything, top_layers
from palaestra.models.chatml import END, ChatMLRenderer
from palaestra.models.checkpoint_format import read_network, write_network
from palaestra.models.engine import OnUpdate
from palaestra.models.network import DecoderNetwork
from palaestra.models.registry import device, precision
from palaestra.models.resident import ResidentModel
from palaestra.models.tiny import tiny_network

CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Valued = tuple[DecoderNetwork, ValueHead]
"""A critic: a network, and what reads values off its last hidden states."""

POLICY = "policy"  # the name under which the trained model's calls are recorded


def build_policy(recipe: Recipe, origin: Path) -> ResidentModel:
    """The resident model of a recipe.

    Args:
        recipe: what to build.
        origin: a checkpoint folder; for the tiny transformer, the folder with its tokenizer.
    """
    part = recipe.model
    renderer, place = ChatMLRenderer.from_folder(origin), device(part.device)
    if part.name == "tiny":
        sizes = (part.tiny or Tiny()).model_dump()
        network = tiny_network(
            renderer.tokenizer.get_vocab_size(), **sizes, context=part.context, seed=recipe.seed
        )
    else:
        network = read_network(origin, precision(part.precision, place))
    network = network.to(place)
    longest = network.config.max_position_embeddings
    if part.context > longest:
        raise InputError(
            f"model.context = {part.context} is longer than the {longest} tokens that "
            f"'{part.name}' can hold; set model.context={longest} or less."
        )
    if recipe.training.lora_rank is not None:
        from palaestra.models.lora import add_lora  # peft takes seconds to import

        add_lora(network, recipe.training.lora_rank, recipe.seed)
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


def slots_of(recipe: Recipe) -> int:
    """Replies that the policy has under way at once."""
    return recipe.model.slots or recipe.concurrency + 2


def selection(model: ResidentModel, recipe: Recipe) -> Selection:
    """The weights that the recipe trains."""
    match recipe.training.weights:
        case "full":
            return everything(model.network)
        case "top":
            assert recipe.training.top_layers is not None
            return top_layers(model.network, recipe.training.top_layers)
        case "lora":
            return adapters(model.network)


def export(model: ResidentModel, recipe: Recipe, folder: Path) -> None:
    """Write the policy as a Hugging Face checkpoint that transformers and palaestra load."""
    write_network(_whole(model.network, recipe), folder)
    assert isinstance(model.renderer, ChatMLRenderer)
    save_tokenizer(model.renderer.tokenizer, folder)
    stop = {"eos_token_id": sorted(model.renderer.end_tokens)}
    (folder / "generation_config.json").write_text(json.dumps(stop) + "\n")


def export_critic(critic: Valued, recipe: Recipe, folder: Path, policy: Path) -> None:
    """Write the critic as a scorer that searches can ask (see `models.scoring`).

    Args:
        critic: that was trained beside the policy.
        recipe: of the run.
        folder: made if it is not there.
        policy: the exported policy, whose tokenizer it shares.
    """
    from palaestra.models.scoring import save_value

    network, head = critic
    save_value(folder, _whole(network, recipe), dict(head.named_parameters()), policy)


def _whole(network: DecoderNetwork, recipe: Recipe) -> DecoderNetwork:
    """With its adapters merged, if it has any."""
    if recipe.training.weights != "lora":
        return network
    from palaestra.models.lora import merged

    return merged(network)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """`tokenizer.json` and the chat template, as transformers reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": CHATML_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")
