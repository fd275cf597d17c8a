"""An estimate of the resources of a run: memory, disk and time.

Memory, in bytes, with P the model's parameters, T those that are trained, b the bytes of a
number in the chosen precision:

    weights       P b
    packed        P b on processors: the copy with which the engine acts
    masters       master weights: 4 T in bf16; none in fp32
    gradients     4 T, and as much for each family of tasks and their sum with `rl.conflict`
    moments       8 T (AdamW keeps two)
    cache         2 b x layers x key/value heads x head size x (concurrency + 2) x tokens
    beside        critics, progress models and reward models of the stage that holds most of them:
                  see `training.memory_beside`
    pass          memory of one pass of the learner: see `learning.compute.memory_budget`,
                  which also plans the size of passes
    process       a constant for Python and torch, and one per environment worker

Where learners divide it (`cluster.shard`), masters, gradients and moments are divided by their
number; in deterministic runs gradients are not.

Disk: checkpoints of weights and moments (12 T; after imitation, and the latest two of RL), the
trained model (P b), and TOKEN_BYTES for each token of an episode.

Time is tokens divided by speeds measured on the reference machine (two cores with native bf16),
times the speed of this machine's matrix products relative to that one's.
The tokens of an episode are FIRST_TOKENS, and TURN_TOKENS and a reply for each turn. An episode
uses the share TURNS_USED of its allowed turns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from palaestra.cli.stage_plan import efforts
from palaestra.training.recipe import Recipe
from palaestra.training.recipe_sections import Tiny
from palaestra.training.stage_program import named_versions, program, steps_of
from palaestra.training.stage_sections import Reinforce

if TYPE_CHECKING:
    import torch

    from palaestra.models.local.architecture import NetworkConfig
    from palaestra.models.local.network import DecoderNetwork
    from palaestra.models.local.own_cache_network import OwnCacheNetwork
    from palaestra.training.memory_beside import ModelBeside

# Tokens of rollouts per second, of SmolLM2-135M. Shared prefixes are processed once, and rollouts
# without an advantage are not learned from: of distinct tokens, the engine processes 1,400 to 2,000
# a second and the learner 600 to 1,000.
ROLLOUT_SPEED = LEARNER_SPEED = 2500.0
SPEED_PARAMETERS = 135e6  # of the measured model
SPEED_PRODUCTS = 400e9  # floating-point operations per second of the reference machine's products
FASTER = 2.0  # at most: what is no product stays as slow
TINY_FACTOR = 10.0  # speed of the tiny transformer, relative to it
FIRST_TOKENS, TURN_TOKENS = 75, 28  # instructions and first observation; each later observation
REPLY_TOKENS = 4  # a direct agent's action word; thoughts and free texts: half of max_tokens
TURNS_USED = 0.7
PROCESS_BYTES, WORKER_BYTES = 450e6, 150e6
TINY_VOCABULARY = 1024  # maximum
USUAL = "smollm2-135m"  # whose sizes stand for those of a model that is not here
TOKEN_BYTES = 27  # of a run's database per token read or sampled, in the recipe `quick`


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes, by use."""

    weights: float
    packed: float
    masters: float
    gradients: float
    moments: float
    cache: float
    beside: float
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
    weights: int  # bytes
    learning_pass: int  # bytes
    pass_token: int  # bytes, of each token of a pass
    way: str  # whose code and whose cache run it
    state_bytes: int  # of a conversation's cache, whatever its length
    token_bytes: int  # of it, for each token
    note: str  # source of the sizes, if not the model itself


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated resources of a run."""

    size: Size
    memory: Memory
    seconds: dict[str, float]  # by stage
    disk: dict[str, float]  # bytes by kind of file

    @property
    def minutes(self) -> str:
        """The total time as text, e.g. "about 2 min"."""
        return f"about {max(1, round(sum(self.seconds.values()) / 60))} min"


def estimate(recipe: Recipe) -> Estimate:
    """Estimate the resources of a recipe; see the top of this module.

    Raises:
        InputError: an environment does not exist, or a size is invalid.
    """
    from palaestra.training.run_context import typical_turns

    turns = recipe.environment.turns or typical_turns(recipe.environment.id)
    transfer_turns = (
        typical_turns(recipe.environment.transfer) if recipe.environment.transfer else 0
    )
    size = measure(recipe)
    return Estimate(
        size,
        memory(recipe, size, turns),
        seconds(recipe, size, turns, transfer_turns),
        disk(recipe, size, turns, transfer_turns),
    )


def models_beside(recipe: Recipe, size: Size) -> tuple[int, list[ModelBeside]]:
    """Return the most bytes that models beside the policy take at once, and which these are."""
    from palaestra.training.memory_beside import Sizes, most_beside

    sizes = Sizes(size.parameters, size.trained, size.weights, _narrow(recipe))
    return most_beside(recipe, sizes)


def measure(recipe: Recipe) -> Size:
    """Return the policy's sizes, without loading weights.

    Raises:
        InputError: the architecture is not supported, or the model has too few layers.
    """
    import torch

    from palaestra.learning.compute.memory_budget import MemoryBudget
    from palaestra.learning.compute.weight_selection import adapters, everything, top_layers
    from palaestra.models.local.networks import way_of
    from palaestra.models.local.quantised import QuantisedLinear

    part, dtype = recipe.training, torch.bfloat16 if _narrow(recipe) else torch.float32
    network, note = _network(recipe, dtype)
    with torch.device("meta"):
        if part.weights == "lora":
            from palaestra.models.local.lora import add_lora, quantise
            from palaestra.training.role_adapters import learning

            if recipe.model.quantise is not None:
                quantise(network, recipe.model.quantise)
            names = tuple(learning(recipe).values())
            for name in names:
                add_lora(network, part.lora_rank or 1, seed=0, name=name)
            chosen = adapters(network, names)
        elif part.weights == "top":
            chosen = top_layers(network, part.top_layers or 1)
        else:
            chosen = everything(network)
    budget = MemoryBudget(
        network,
        chosen.parameters,
        chosen.frozen_layers,
        part.memory_bytes,
        ranks=recipe.sharing,
        whole_gradients=recipe.deterministic,
    )
    parameters = sum(p.numel() for p in network.parameters())
    stored = sum(p.nbytes for p in (*network.parameters(), *network.buffers()))
    for layer in network.modules():
        if isinstance(layer, QuantisedLinear):
            parameters += layer.out_features * layer.in_features
    trained = sum(p.numel() for p in chosen.parameters.values())
    learning_pass = budget.needs.of(budget.tokens) - budget.needs.optimiser
    config = network.config
    keys = config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    sizes = (0, 2 * network.dtype.itemsize * keys)
    if network.own_cache:
        own = cast("OwnCacheNetwork", network)
        sizes = own.state_bytes, own.token_bytes
    each = budget.needs.per_token
    way = way_of(network)
    return Size(config, parameters, trained, stored, learning_pass, each, way, *sizes, note)


def memory(recipe: Recipe, size: Size, turns: int) -> Memory:
    """Estimate memory; see the top of this module."""
    from palaestra.learning.critics.encoder import AT_ONCE

    beside, models = models_beside(recipe, size)
    masters, gradients, moments = _kept(recipe, size)
    tokens = min(recipe.model.context, max(256, round(_episode(recipe, turns))))
    return Memory(
        weights=size.weights,
        packed=size.weights if _packs(recipe, size) else 0,
        masters=masters,
        gradients=gradients + 4 * size.trained * _apart(recipe),
        moments=moments,
        cache=(size.state_bytes + tokens * size.token_bytes) * (recipe.concurrency + 2),
        beside=beside,
        learning_pass=max(size.learning_pass, AT_ONCE * tokens * size.pass_token if models else 0),
        process=PROCESS_BYTES + WORKER_BYTES * recipe.environment.workers,
    )


def _kept(recipe: Recipe, size: Size) -> tuple[float, float, float]:
    """Return the bytes of master weights, gradients and moments that one learner keeps."""
    own = size.trained / recipe.sharing
    gradients = size.trained if recipe.deterministic else own
    return 4 * own if _narrow(recipe) else 0, 4 * gradients, 8 * own


def of_learners(recipe: Recipe) -> str | None:
    """Return a line about the memory of each further learner; None if there are none."""
    part = recipe.cluster
    if part is None or part.learners == 1:
        return None
    totals = {}
    for shard in (False, True):
        update = {"cluster": part.model_copy(update={"shard": shard})}
        one = recipe.model_copy(update=update)
        size = measure(one)
        totals[shard] = size.weights + sum(_kept(one, size)) + size.learning_pass + PROCESS_BYTES
    return (
        f"each further learner: about {totals[part.shard] / 1e9:.2f} GB; with cluster.shard = "
        f"{str(not part.shard).lower()} about {totals[not part.shard] / 1e9:.2f} GB"
    )


def _apart(recipe: Recipe) -> int:
    """Return how many more gradients `rl.conflict` keeps: one per family, and their sum."""
    parts = [step.part for step in steps_of(program(recipe))]
    families = max((part.families for part in parts if isinstance(part, Reinforce)), default=0)
    return families and families + 1


def seconds(recipe: Recipe, size: Size, turns: int, transfer_turns: int) -> dict[str, float]:
    """Estimate seconds by stage; see the top of this module."""
    acting, learning = _speeds(recipe, size)
    if recipe.stage:
        found: dict[str, float] = {}
        tokens = _episode(recipe, turns)
        for one in efforts(recipe):
            cost = tokens * (one.acted / acting + one.learned / learning)
            found[one.name] = found.get(one.name, 0.0) + cost
        return found
    test_tokens, imitation_tokens, rl_tokens = _tokens(recipe, size, turns, transfer_turns)
    return {
        "tests": test_tokens / acting,
        "imitation": imitation_tokens * recipe.imitation.epochs / learning,
        "rl rollouts": rl_tokens / acting,
        "rl learning": rl_tokens / learning,
    }


def disk(recipe: Recipe, size: Size, turns: int, transfer_turns: int) -> dict[str, float]:
    """Estimate bytes by kind of file; see the top of this module."""
    from palaestra.training.role_adapters import clusters_of

    checkpoints = bool(recipe.imitation.demonstrations) + min(2, recipe.rl.steps)
    copies = 1 if clusters_of(recipe) is None else 2  # a router acts on the base without adapters
    if recipe.stage:
        checkpoints = 2 + len(named_versions(recipe))
        tokens = sum(one.acted for one in efforts(recipe)) * _episode(recipe, turns)
    else:
        tokens = sum(_tokens(recipe, size, turns, transfer_turns))
    return {
        "episodes": TOKEN_BYTES * tokens,
        "checkpoints": 12 * size.trained * checkpoints,
        "trained model": copies * size.parameters * (2 if _narrow(recipe) else 4),
    }


def _speeds(recipe: Recipe, size: Size) -> tuple[float, float]:
    """Return tokens per second of acting and learning."""
    if recipe.model.name == "tiny":  # most of its time goes into worlds and single calls
        faster = TINY_FACTOR
    else:
        faster = SPEED_PARAMETERS / size.parameters * min(FASTER, _products(recipe))
    return ROLLOUT_SPEED * faster, LEARNER_SPEED * faster


def _products(recipe: Recipe) -> float:
    """Return the speed of this machine's matrix products, relative to the reference machine's."""
    from palaestra.models.local.devices import device, precision
    from palaestra.runtime.matrix_speed import matrix_speed

    target = device(recipe.model.device)
    return matrix_speed(precision(recipe.model.precision, target), target) / SPEED_PRODUCTS


def _tokens(
    recipe: Recipe, size: Size, turns: int, transfer_turns: int
) -> tuple[float, float, float]:
    """Return the tokens of tests, demonstrations and RL rollouts."""
    acting, learning = _speeds(recipe, size)
    tokens = _episode(recipe, turns)
    policies = 1 + bool(recipe.imitation.demonstrations) + bool(recipe.rl.steps)
    test_tokens = recipe.evaluation.tasks * tokens
    if transfer_turns:
        test_tokens += recipe.evaluation.transfer_tasks * _episode(recipe, transfer_turns)
    rl_tokens = recipe.rl.steps * recipe.rl.tasks * recipe.rl.group * tokens
    if recipe.rl.tokens is not None:
        rl_tokens = min(rl_tokens, recipe.rl.tokens)
    test_tokens, shown = policies * test_tokens, recipe.imitation.demonstrations * tokens
    if recipe.minutes is not None:
        before = test_tokens / acting + shown * recipe.imitation.epochs / learning
        left = max(0.0, 60 * recipe.minutes - before)
        rl_tokens = min(rl_tokens, left / (1 / acting + 1 / learning))
    return test_tokens, shown, rl_tokens


def _episode(recipe: Recipe, turns: int) -> float:
    """Return the tokens of an episode, read and sampled."""
    from palaestra.environments.registry import spec

    allowed = recipe.agent.max_tokens
    words = recipe.agent.name == "direct" and not spec(recipe.environment.id).free_text
    reply = min(REPLY_TOKENS, allowed) if words else allowed / 2
    return FIRST_TOKENS + TURNS_USED * turns * (TURN_TOKENS + reply)


def _network(recipe: Recipe, dtype: torch.dtype) -> tuple[DecoderNetwork, str]:
    """Return the policy's network without weights, and where its sizes are from otherwise."""
    import torch

    from palaestra.models.local.architecture import NetworkConfig
    from palaestra.models.local.named_models import MODELS
    from palaestra.models.local.network import DecoderNetwork
    from palaestra.models.local.networks import blank_network
    from palaestra.models.local.weights import ready

    note = ""

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
    else:
        folder = ready(recipe.model.name)
        if folder is not None:
            network = blank_network(folder, dtype, recipe.model.backend)
            network.context = min(recipe.model.context, network.context)
            return network, ""
        known = MODELS.get(recipe.model.name)
        config = (known or MODELS[USUAL]).sizes
        note = f"'{recipe.model.name}' is not cached yet"
        note += "." if known else f"; the estimate uses the sizes of '{USUAL}'."
    with torch.device("meta"):
        return DecoderNetwork(config).to(dtype), note


def _packs(recipe: Recipe, size: Size) -> bool:
    """Return whether the engine acts with packed weights, as `packed_weights` makes them."""
    import torch

    from palaestra.models.local.devices import device
    from palaestra.models.local.packed_weights import packs

    on_processor = device(recipe.model.device).type == "cpu"
    whole = recipe.model.quantise is None and size.way == "resident"
    return on_processor and whole and packs(torch.bfloat16 if _narrow(recipe) else torch.float32)


def _narrow(recipe: Recipe) -> bool:
    """Return whether the policy computes in bf16."""
    import torch

    from palaestra.models.local.devices import device, precision

    part = recipe.model
    return part.name != "tiny" and precision(part.precision, device(part.device)) is torch.bfloat16
