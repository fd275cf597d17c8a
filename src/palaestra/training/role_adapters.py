"""Adapters of a recipe's roles: which learn, which stay frozen, and what each begins with.

The agent's adapter is the one of the model's name, or a new one. Roles and players without an
adapter of their own share it. Replies of a role that learns are recorded under the policy's name
with its adapter, those of a frozen one under the name by which other runs find the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.core.model import Model, adapted
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.algorithms import Method
from palaestra.models.call_router import RoutedModel, is_cluster
from palaestra.models.local.adapter_config import AdapterConfig
from palaestra.models.local.adapter_files import read_adapter
from palaestra.models.local.lora import OWN, Factors, add_adapter, add_lora
from palaestra.models.local.name_options import NamedCheckpoint
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.resident import ResidentModel
from palaestra.training.adapter_sections import Clusters, roles_trained
from palaestra.training.method import chosen
from palaestra.training.recipe import Recipe
from palaestra.training.recipe_sections import Adapter
from palaestra.training.stage_program import program, steps_of
from palaestra.training.stage_sections import Imitate

POLICY = "policy"  # the name under which the trained model's calls are recorded
AGENT = "agent"
SEEDS = 1_000_003  # between the seeds of new adapters


def learning(recipe: Recipe, roles: Sequence[str] | None = None) -> dict[str, str]:
    """Return the names of adapters in the network, by role; empty without LoRA.

    Args:
        recipe: of the run.
        roles: whose adapters are asked for; None: all that learn in some stage.
    """
    wanted = recipe.training.learners if roles is None else roles
    return {role: name_in_network(role) for role in wanted}


def name_in_network(role: str) -> str:
    """Return the name of a role's adapter in the network, where names have no dots."""
    return OWN if role == AGENT else role.replace(".", ":")


def learners_of(recipe: Recipe, part: object) -> tuple[str, ...]:
    """Return the roles and clusters whose adapters learn in a stage; without LoRA none.

    Args:
        recipe: of the run.
        part: the stage's table.
    """
    every = recipe.training.learners
    if isinstance(part, Imitate) and part.adapters is not None:
        return tuple(role for role in every if role in part.adapters.names)
    named = roles_trained(part)
    return every if named is None else tuple(role for role in every if role in named)


def clusters_of(recipe: Recipe) -> Clusters | None:
    """Return the clusters whose adapters a recipe's stages train; all of them have the same."""
    parts = (step.part for step in steps_of(program(recipe)))
    return next((p.adapters for p in parts if isinstance(p, Imitate) and p.adapters), None)


def names(recipe: Recipe) -> dict[str, str]:
    """Return the model name of each role's adapter that begins with a folder.

    Raises:
        InputError: a folder holds no adapter.
    """
    found = {role: _name(recipe, role) for role in recipe.training.adapters}
    return {role: name for role, name in found.items() if NamedCheckpoint.parse(name).adapter}


def check_role_adapters(recipe: Recipe, known: Sequence[str]) -> None:
    """Check the adapters of a recipe's roles; read no weights.

    Args:
        recipe: of the run.
        known: the players of its environment, and the roles of its agent beside "agent".

    Raises:
        InputError: a role does not exist, or its adapter cannot act or learn with the recipe.
    """
    given, learners = recipe.training.adapters, recipe.training.learners
    for role, part in given.items():
        if role not in (AGENT, *known):
            raise UnknownName("role or player", role, known)
        if part.folder is not None and (role == AGENT or recipe.model.name == "tiny"):
            raise RecipeError(
                f"training.adapters.{role}.folder = '{part.folder}' has no effect: "
                + (
                    "the agent's adapter is that of model.name; write NAME?adapter=FOLDER there."
                    if role == AGENT
                    else "a model that is trained from scratch has no earlier adapter; unset it."
                )
            )
        if role == AGENT and not part.frozen:
            raise RecipeError(
                "training.adapters: 'agent' has an adapter already; name other roles, or set "
                "training.adapters.agent.frozen=true."
            )
    if recipe.model.name != "tiny":
        _check_configs(recipe)
    if not given:
        return
    if recipe.acting_elsewhere is not None:
        raise RecipeError(
            f"training.adapters needs the learner's process to act, not "
            f"{recipe.acting_elsewhere}; unset one."
        )
    if any(part.frozen and _name(recipe, role) == POLICY for role, part in given.items()):
        raise RecipeError(
            f"model.name = '{POLICY}' is the name under which what learns is recorded, and a role "
            f"acts with it frozen; write './{POLICY}'."
        )
    if not learners and (recipe.rl.steps or recipe.imitation.demonstrations):
        raise RecipeError(
            "All adapters of training.adapters are frozen, so nothing learns; let one of them "
            "learn, or use `palaestra eval` with --role."
        )
    shown = recipe.imitation
    if AGENT not in learners and shown.demonstrations and shown.demonstrator != "policy":
        raise RecipeError(
            f"imitation.demonstrator = '{shown.demonstrator}' shows how to act, and the agent's "
            "adapter is frozen; set imitation.demonstrations=0."
        )
    together = len(learners) > 1 and recipe.training.alternate is None
    if recipe.rl.steps and together and Method(chosen(recipe.rl)).unit is Unit.ROLLOUT:
        raise RecipeError(
            "training.adapters is impossible with a loss over whole rollouts, whose turns are of "
            "several adapters; set training.alternate, so that one learns at a time, or choose "
            "another loss."
        )


def _check_configs(recipe: Recipe) -> None:
    """Check the adapters that the recipe begins with by their configurations alone.

    Raises:
        InputError: one cannot be read, or cannot be trained with the recipe.
    """
    for role, name in ({AGENT: recipe.model.name} | names(recipe)).items():
        folder = NamedCheckpoint.parse(name).adapter
        if folder is None:
            continue
        rank = AdapterConfig.read(folder).rank
        if recipe.training.weights != "lora":
            raise RecipeError(
                f"model.name = '{name}' names an adapter, which is trained further with "
                "training.weights=lora only; set that, or merge the adapter with peft first."
            )
        if role in recipe.training.learners and rank != recipe.training.lora_rank:
            raise RecipeError(
                f"The adapter '{folder}' is of rank {rank}, and the recipe has training.lora_rank "
                f"= {recipe.training.lora_rank}; set training.lora_rank={rank}."
            )


def add_adapters(network: DecoderNetwork, recipe: Recipe) -> None:
    """Add the adapters of all roles to a network, whose own weights do not change.

    Raises:
        InputError: one is of another base, or of a form that cannot be trained further.
    """
    rank = recipe.training.lora_rank
    assert rank is not None  # of a recipe with LoRA
    given = {AGENT: Adapter()} | recipe.training.adapters
    others = [role for role in given if role != AGENT]
    for role, part in given.items():
        name = name_in_network(role)
        folder = NamedCheckpoint.parse(_name(recipe, role)).adapter
        if folder is not None:
            factors = read_adapter(folder, network)
            if not part.frozen:
                check_form(folder, factors, rank)
            add_adapter(network, name, factors)
        elif not part.frozen:
            number = 0 if role == AGENT else 1 + others.index(role)
            add_lora(network, rank, recipe.seed + SEEDS * number, name)
    if network.adapters is not None:
        network.adapters.by_role = learning(recipe)


def check_form(folder: Path, factors: Mapping[str, Factors], rank: int) -> None:
    """Raise InputError unless an adapter has one pair of matrices of that rank for each layer."""
    if any(len(one.down) != rank for one in factors.values()):
        raise InputError(
            f"The adapter '{folder}' has matrices of its own for layers that are joined here, and "
            "cannot be trained further; merge it into its base with peft and start from the result."
        )


def acting_adapters(recipe: Recipe) -> dict[str, str | None]:
    """Return the adapter in the network by which each role and cluster acts; None: the base alone.

    Args:
        recipe: of the run, with LoRA.
    """
    found: dict[str, str | None] = {}
    for role, part in ({AGENT: Adapter()} | recipe.training.adapters).items():
        has_one = not part.frozen or frozen_adapter(recipe, role) is not None
        found[role] = name_in_network(role) if has_one else None
    return found


def frozen_adapter(recipe: Recipe, role: str) -> Path | None:
    """Return the folder of a role's adapter, if it is frozen and has one."""
    part = recipe.training.adapters.get(role)
    frozen = part is not None and part.frozen
    return NamedCheckpoint.parse(_name(recipe, role)).adapter if frozen else None


def models_of_roles(recipe: Recipe, policy: ResidentModel, acting: Model) -> dict[str, Model]:
    """Return the model of each role; others fall back to the agent's.

    Args:
        recipe: of the run.
        policy: has the adapters, and maybe a router, which chooses for roles without their own.
        acting: replies instead of the policy in roles that learn: the policy itself, an actor
            elsewhere, or a demonstrator.
    """
    found: dict[str, Model] = {AGENT: acting}
    adapters = acting_adapters(recipe)
    for role, part in recipe.training.adapters.items():
        if is_cluster(role):  # the router's, not a role's
            continue
        if part.frozen:
            found[role] = policy.beside(_name(recipe, role), adapters[role], frozen=True)
        elif acting is policy and role != AGENT:
            found[role] = policy.beside(adapted(policy.name, role), adapters[role])
        else:
            found[role] = acting
    if acting is policy and policy.router is not None:
        clusters: dict[str, Model] = {
            name: policy.beside(adapted(policy.name, name), name) for name in policy.router.names
        }
        found[AGENT] = RoutedModel(policy.router, clusters, found[AGENT])
    return found


def described(recipe: Recipe) -> list[str]:
    """Return lines that say which roles' adapters learn, and which stay frozen."""
    if recipe.training.weights != "lora":
        return []
    given = {AGENT: Adapter()} | recipe.training.adapters
    texts = {role: f"{role} ({_origin(recipe, role, part)})" for role, part in given.items()}
    learners = recipe.training.learners
    every = recipe.training.alternate
    how = "" if every is None else f", in turns of {every} RL step{'s' * (every > 1)}"
    lines = [f"learns: {', '.join(texts[role] for role in learners)}{how}"]
    if frozen := [text for role, text in texts.items() if role not in learners]:
        lines.append(f"frozen: {', '.join(frozen)}")
    return lines


def _origin(recipe: Recipe, role: str, part: Adapter) -> str:
    folder = NamedCheckpoint.parse(_name(recipe, role)).adapter
    if folder is not None:
        return f"adapter of {folder}"
    return "the base alone" if part.frozen else "a new adapter"


def _name(recipe: Recipe, role: str) -> str:
    """Return the name of the model that a role begins with."""
    name = recipe.model.name
    if role == AGENT:
        return name
    base, _, query = name.partition("?")
    options = [one for one in query.split("&") if one and not one.startswith("adapter=")]
    folder = recipe.training.adapters[role].folder
    options += [] if folder is None else [f"adapter={folder}"]
    return f"{base}?{'&'.join(options)}" if options else base
