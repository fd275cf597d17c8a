"""`palaestra train --dry-run`: the resolved recipe, and what it will need, before it starts.

Memory, in bytes, with P the model's parameters, T those that are trained, b the bytes of a
number in the chosen precision:

    weights       P b
    masters       4 T in bf16; none in fp32, where the weights themselves are trained
    gradients     4 T
    moments       8 T (AdamW keeps two)
    cache         2 b x layers x key/value heads x head size x (concurrency + 2) x tokens
    pass          what one pass of the learner keeps: see `learning.memory`, which also plans
                  how large its passes are
    process       a constant for Python and torch, and one per environment worker

Disk: checkpoints of weights and moments (12 T; after imitation, and the latest two of RL), the
trained model (P b), and TOKEN_BYTES for each token of an episode.

Time is tokens over speeds measured on the reference machine (two cores with native bf16). An
episode counts FIRST_TOKENS, and TURN_TOKENS and a reply for each of its turns, of which it takes
the share TURNS_USED of those allowed.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from palaestra.experiment.recipe import Recipe
from palaestra.experiment.sections import Tiny

if TYPE_CHECKING:
    from palaestra.models.network import NetworkConfig

# Tokens of rollouts per second, of SmolLM2-135M. Prefixes that sessions share are read and
# learned once, and rollouts without an advantage are not learned at all: of distinct tokens,
# the engine runs 1,400 to 2,000 a second and the learner 600 to 1,000.
ROLLOUT_SPEED = LEARNER_SPEED = 2500.0
SPEED_PARAMETERS = 135e6  # of the model with which they were measured
TINY_FACTOR = 10.0  # how much faster the tiny transformer is
FIRST_TOKENS, TURN_TOKENS = 75, 28  # instructions and first observation; each later observation
REPLY_TOKENS = 4  # a direct agent's reply is an action word; others use half of max_tokens
TURNS_USED = 0.7
PROCESS_BYTES, WORKER_BYTES = 450e6, 150e6
TINY_VOCABULARY = 1024  # at most
TOKEN_BYTES = 27  # of a run's database for each token read or sampled, by the recipe `quick`


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by use."""

    weights: float
    masters: float
    gradients: float
    moments: float
    cache: float
    learning_pass: float
    process: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of the policy that memory depends on."""

    config: NetworkConfig
    parameters: int
    trained: int
    learning_pass: int  # bytes
    note: str  # where the sizes come from, if not from the model itself


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will need."""

    size: Size
    memory: Memory
    seconds: dict[str, float]  # by stage
    disk: dict[str, float]  # bytes by what is written

    @property
    def minutes(self) -> str:
        """In words, e.g. "about 2 min"."""
        return f"about {max(1, round(sum(self.seconds.values()) / 60))} min"


def estimate(recipe: Recipe) -> Estimate:
    """See the top of this module.

    Raises:
        InputError: an environment that is not there, or a size that cannot work.
    """
    from palaestra.experiment.setting import typical_turns

    turns = recipe.environment.turns or typical_turns(recipe.environment.id)
    far = typical_turns(recipe.environment.transfer) if recipe.environment.transfer else 0
    size = measure(recipe)
    return Estimate(
        size,
        memory(recipe, size, turns),
        seconds(recipe, size, turns, far),
        disk(recipe, size, turns, far),
    )


def describe(recipe: Recipe, folder: str, as_json: bool) -> int:
    """Print what the recipe needs, then itself as TOML (or all as JSON); returns the exit code.

    Args:
        recipe: what would be run.
        folder: where the run would lie.
        as_json: print one JSON object.

    Raises:
        InputError: a name or a size of the recipe that cannot work.
    """
    from palaestra.experiment.check import check_recipe
    from palaestra.experiment.crowd import note

    check_recipe(recipe)
    found = estimate(recipe)
    if as_json:
        document = {
            "recipe": recipe.model_dump(mode="json"),
            "parameters": found.size.parameters,
            "trained_parameters": found.size.trained,
            "memory_bytes": _with_total(asdict(found.memory)),
            "seconds": _with_total(found.seconds),
            "disk_bytes": _with_total(found.disk),
            "note": found.size.note,
        }
        print(json.dumps(document))
        return 0
    spent = ", ".join(f"{name} {value / 60:.1f}" for name, value in found.seconds.items())
    print(f"# time: {found.minutes} ({spent})")
    parts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in asdict(found.memory).items())
    print(f"# memory: about {found.memory.total / 1e9:.1f} GB ({parts})")
    written = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in found.disk.items())
    print(f"# writes: about {sum(found.disk.values()) / 1e9:.2f} GB to {folder} ({written})")
    print("# A rough guide, from speeds measured on two cores with native bf16.")
    size = found.size
    print(f"# {size.parameters / 1e6:.1f} million parameters, {size.trained / 1e6:.1f} trained")
    crowded = note(recipe.environment.id, recipe.concurrency, "--set concurrency=")
    for line in (size.note, crowded):
        if line:
            print(f"# {line}")
    print()
    print(toml(recipe), end="")
    return 0


def _with_total(parts: dict[str, float]) -> dict[str, float]:
    return parts | {"total": sum(parts.values())}


def toml(recipe: Recipe) -> str:
    """The recipe with every key; keys without a value stand as comments."""
    return "\n".join(_table(recipe.model_dump(mode="json"), "")).strip() + "\n"


def measure(recipe: Recipe) -> Size:
    """The policy's sizes, without loading weights.

    Raises:
        InputError: the model has another architecture, or fewer layers than are to be trained.
    """
    import torch

    from palaestra.learning.memory import MemoryBudget
    from palaestra.learning.selection import adapters, everything, top_layers
    from palaestra.models.network import DecoderNetwork

    config, note = _config(recipe)
    part, dtype = recipe.training, torch.bfloat16 if _narrow(recipe) else torch.float32
    with torch.device("meta"):
        network = DecoderNetwork(config).to(dtype)
        if part.weights == "lora":
            from palaestra.models.lora import add_lora

            add_lora(network, part.lora_rank or 1, seed=0)
            chosen = adapters(network)
        elif part.weights == "top":
            chosen = top_layers(network, part.top_layers or 1)
        else:
            chosen = everything(network)
    budget = MemoryBudget(network, chosen.parameters, chosen.frozen_layers, part.memory_bytes)
    parameters = sum(p.numel() for p in network.parameters())
    trained = sum(p.numel() for p in chosen.parameters.values())
    apart = budget.needs.of(budget.tokens) - budget.needs.optimiser
    return Size(config, parameters, trained, apart, note)


def memory(recipe: Recipe, size: Size, turns: int) -> Memory:
    """See the top of this module."""
    config, narrow = size.config, _narrow(recipe)
    width = 2 if narrow else 4
    tokens = min(recipe.model.context, max(256, round(_episode(recipe, turns))))
    slot = config.num_hidden_layers * config.num_key_value_heads * config.head_dim * tokens
    return Memory(
        weights=size.parameters * width,
        masters=4 * size.trained if narrow else 0,
        gradients=4 * size.trained,
        moments=8 * size.trained,
        cache=2 * width * slot * (recipe.concurrency + 2),
        learning_pass=size.learning_pass,
        process=PROCESS_BYTES + WORKER_BYTES * recipe.environment.workers,
    )


def seconds(recipe: Recipe, size: Size, turns: int, transfer_turns: int) -> dict[str, float]:
    """Seconds by stage; see the top of this module."""
    acting, learning = _speeds(recipe, size)
    tested, studied, practised = _tokens(recipe, size, turns, transfer_turns)
    return {
        "tests": tested / acting,
        "imitation": studied * recipe.imitation.epochs / learning,
        "rl rollouts": practised / acting,
        "rl learning": practised / learning,
    }


def disk(recipe: Recipe, size: Size, turns: int, transfer_turns: int) -> dict[str, float]:
    """Bytes by what is written; see the top of this module."""
    kept = bool(recipe.imitation.demonstrations) + min(2, recipe.rl.steps)
    lived = sum(_tokens(recipe, size, turns, transfer_turns))
    return {
        "episodes": TOKEN_BYTES * lived,
        "checkpoints": 12 * size.trained * kept,
        "trained model": size.parameters * (2 if _narrow(recipe) else 4),
    }


def _speeds(recipe: Recipe, size: Size) -> tuple[float, float]:
    """Tokens per second, acting and learning."""
    faster = TINY_FACTOR if recipe.model.name == "tiny" else SPEED_PARAMETERS / size.parameters
    return ROLLOUT_SPEED * faster, LEARNER_SPEED * faster


def _tokens(
    recipe: Recipe, size: Size, turns: int, transfer_turns: int
) -> tuple[float, float, float]:
    """Tokens of the episodes of tests, demonstrations and reinforcement."""
    acting, learning = _speeds(recipe, size)
    tokens = _episode(recipe, turns)
    policies = 1 + bool(recipe.imitation.demonstrations) + bool(recipe.rl.steps)
    tested = recipe.evaluation.tasks * tokens
    if transfer_turns:
        tested += recipe.evaluation.transfer_tasks * _episode(recipe, transfer_turns)
    practised = recipe.rl.steps * recipe.rl.tasks * recipe.rl.group * tokens
    if recipe.rl.tokens is not None:
        practised = min(practised, recipe.rl.tokens)
    if recipe.rl.minutes is not None:
        practised = min(practised, 60 * recipe.rl.minutes / (1 / acting + 1 / learning))
    return policies * tested, recipe.imitation.demonstrations * tokens, practised


def _episode(recipe: Recipe, turns: int) -> float:
    """Tokens of an episode, read and sampled."""
    allowed = recipe.agent.max_tokens
    reply = min(REPLY_TOKENS if recipe.agent.name == "direct" else allowed / 2, allowed)
    return FIRST_TOKENS + TURNS_USED * turns * (TURN_TOKENS + reply)


def _config(recipe: Recipe) -> tuple[NetworkConfig, str]:
    from palaestra.models.network import NetworkConfig
    from palaestra.models.weights import ready

    if recipe.model.name == "tiny":
        tiny = recipe.model.tiny or Tiny()
        config = NetworkConfig(
            vocab_size=TINY_VOCABULARY,
            hidden_size=tiny.width,
            intermediate_size=3 * tiny.width,
            num_hidden_layers=tiny.layers,
            num_attention_heads=tiny.heads,
            num_key_value_heads=tiny.heads,
            max_position_embeddings=recipe.model.context,
        )
        return config, ""
    folder = ready(recipe.model.name)
    if folder is not None:
        return NetworkConfig.read(folder), ""
    smollm2 = NetworkConfig(49152, 576, 1536, 30, 9, 3, 8192)
    note = f"'{recipe.model.name}' is not cached yet; the sizes are those of SmolLM2-135M."
    return smollm2, note


def _narrow(recipe: Recipe) -> bool:
    """Whether the policy computes in bf16."""
    import torch

    from palaestra.models.registry import device, precision

    part = recipe.model
    return part.name != "tiny" and precision(part.precision, device(part.device)) is torch.bfloat16


def _table(data: dict[str, Any], name: str) -> list[str]:
    """One table: its own keys first, then the tables within."""
    lines = [f"\n[{name}]"] if name else []
    for key, value in data.items():
        if not isinstance(value, dict):
            lines.append(f"# {key} is not set" if value is None else f"{key} = {_value(value)}")
    for key, value in data.items():
        if isinstance(value, dict):
            lines += _table(value, f"{name}.{key}" if name else key)
    return lines


def _value(value: bool | int | float | str) -> str:
    """A TOML value: JSON's strings, finite numbers and booleans are TOML's too."""
    return str(value) if value in (math.inf, -math.inf) else json.dumps(value, ensure_ascii=False)
