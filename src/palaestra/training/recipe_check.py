"""Checks of a recipe before a run starts."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.environment import Capability
from palaestra.core.errors import RecipeError
from palaestra.environments.registry import spec, tasks
from palaestra.gateway.program_agents import GatewayAgent
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.component import Component, Kind, Need, find
from palaestra.models.local.devices import device
from palaestra.models.local.name_options import NamedCheckpoint
from palaestra.models.local.serving_process import check_packages
from palaestra.models.registry import check_checkpoint, check_unrouted
from palaestra.training.actor import check_actor
from palaestra.training.demonstrations import RECORDED, check_recorded
from palaestra.training.general_text import check_general
from palaestra.training.method import check_declared, check_method, chosen
from palaestra.training.recipe import Recipe, check
from palaestra.training.recipe_sections import Adapter
from palaestra.training.reinforcement_section import Curriculum
from palaestra.training.role_adapters import (
    AGENT,
    check_role_adapters,
    clusters_of,
    learners_of,
)
from palaestra.training.sight import check_sight
from palaestra.training.stage_check import check_stages
from palaestra.training.stage_program import program, steps_of, view
from palaestra.training.stage_sections import Reinforce
from palaestra.training.stage_sources import StagePart
from palaestra.training.trackers import check_tracker
from palaestra.training.usable_parts import parts, refuse_unmet


def check_recipe(recipe: Recipe, clusters: Sequence[str] = ()) -> None:
    """Check every name of a recipe, and its values against each other.

    Args:
        recipe: to check.
        clusters: names of adapters that belong to no role but to clusters of calls.

    Raises:
        InputError: the first problem found.
    """
    check_general(recipe)
    if recipe.stage:
        check_stages(recipe)
        found = clusters_of(recipe)
        for alone in _alone(recipe):
            check_recipe(alone, () if found is None else found.names)
        return
    for name in recipe.log:
        check_tracker(name)
    agent = make_agent(recipe.agent.chosen)
    if recipe.deterministic and isinstance(agent, GatewayAgent):
        raise RecipeError(
            "deterministic = true is impossible with agent.command: the program decides when it "
            "calls the model; unset one."
        )
    Method(chosen(recipe.rl))
    if recipe.model.name != "tiny":
        check_checkpoint(recipe.model.name)
        check_unrouted(recipe.model.name)
    _check_quantised(recipe)
    if recipe.model.device == "cuda":
        device("cuda")
    asked = spec(recipe.environment.id)
    capabilities = asked.capabilities
    own = recipe.training.adapters if agent.any_role else agent.roles
    check_role_adapters(recipe, (*asked.players, *own, *clusters))
    if asked.images:
        _check_images(recipe, agent)
    if recipe.environment.transfer is not None:
        tasks(recipe.environment.transfer)
    part = recipe.imitation
    examples = find(Kind.EXAMPLES, part.examples)
    examples.configured(part.examples_options)
    if part.demonstrations:
        refuse_unmet(examples.needs, f"imitation.examples = '{part.examples}'")
        _check_stageless(examples.needs, f"imitation.examples = '{part.examples}'")
    if (
        part.demonstrations
        and part.demonstrator == "expert"
        and Capability.ORACLE not in capabilities
    ):
        raise RecipeError(
            f"'{recipe.environment.id}' has no expert to imitate; use --no-imitation."
        )
    if part.demonstrations and part.demonstrator == RECORDED:
        check_recorded(part)
    elif part.demonstrations:
        who = f"imitation.examples = '{part.examples}' with imitation.examples_options"
        check_declared(examples.needs_with(part.examples_options), recipe.environment.id, who)
    if recipe.rl.steps:
        check_method(recipe)
        _check_reference(recipe)
        check_actor(recipe.rl.actor)
        if recipe.cluster is not None and recipe.cluster.engines is not None:
            check_packages()
        if recipe.acting_elsewhere is not None and recipe.agent.reasoning_tokens is not None:
            raise RecipeError(
                f"agent.reasoning_tokens = {recipe.agent.reasoning_tokens} needs the learner's "
                f"process to act, not {recipe.acting_elsewhere}; unset one."
            )
        if Need.TREE in Method(chosen(recipe.rl)).needs and agent.in_order:
            raise RecipeError(
                f"The agent '{recipe.agent.chosen}' learns from one rollout of a task for the "
                "next, so they cannot share beginnings, as the credit rule needs; choose another."
            )
        if recipe.rl.curriculum is not None:
            _check_curriculum(recipe.rl.curriculum)
    if recipe.agent.max_tokens >= recipe.model.context:
        raise RecipeError(
            f"agent.max_tokens = {recipe.agent.max_tokens} leaves no room for a prompt in "
            f"model.context = {recipe.model.context}; lower one or raise the other."
        )


def check_processes(recipe: Recipe, *, together: bool, elsewhere: bool) -> None:
    """Raise RecipeError for what works in one process only.

    Args:
        recipe: of the run.
        together: whether several processes learn.
        elsewhere: whether other processes run the sessions.
    """
    for step in steps_of(program(recipe)):
        if not isinstance(step.part, Reinforce):
            continue
        alone = {"rl.conflict": step.part.conflict, "rl.privileged": step.part.privileged}
        for name in (key for key, value in alone.items() if value is not None):
            if together:
                raise RecipeError(
                    f"{name} works in one process, and several learn together; use one learner, "
                    "or unset it."
                )
        if elsewhere and step.part.advisor is not None:
            raise RecipeError(
                "rl.advisor needs the sessions in the learner's process, and a cluster runs them "
                "elsewhere; run without --on, or unset it."
            )


def _check_stageless(needs: Collection[Need], who: str) -> None:
    """Raise RecipeError if a part learns from what only stages record."""
    if Need.ATTEMPT in needs:
        raise RecipeError(
            f"{who} needs several attempts at each task; write stages: explore with a group, then "
            "imitate."
        )
    if Need.PREFERENCE in needs:
        raise RecipeError(f"{who} makes pairs or labels; write a stage that does 'prefer'.")
    if Need.HINT in needs or Need.COMMAND in needs:
        what = Need.HINT if Need.HINT in needs else Need.COMMAND
        raise RecipeError(
            f"{who} needs {what} in prompts; write stages: explore with {what}, then imitate."
        )


def _alone(recipe: Recipe) -> list[Recipe]:
    """Return the recipe of each stage that reinforces; without one, the recipe without stages."""
    every = [step.part for step in steps_of(program(recipe))]
    parts = {part.called: part for part in every if isinstance(part, Reinforce)}
    return [
        check(_with_others_frozen(recipe, part).model_dump(mode="json"))
        for part in [*parts.values()] or every[:1]
    ]


def _with_others_frozen(recipe: Recipe, part: StagePart) -> Recipe:
    """Return the recipe of one stage, in which the adapters that it does not train are frozen."""
    alone, training = view(recipe, part), recipe.training
    own = learners_of(recipe, part)
    others = [role for role in training.learners if role not in own]
    known = {AGENT: Adapter(), **training.adapters}
    frozen = {role: known[role].model_copy(update={"frozen": True}) for role in others}
    changed: dict[str, object] = {"adapters": {**training.adapters, **frozen}}
    if len(own) < 2:
        changed["alternate"] = None
    return alone.model_copy(update={"training": training.model_copy(update=changed)})


def _check_images(recipe: Recipe, agent: Agent) -> None:
    """Check that the agent passes images on, and that the model sees them."""
    environment = recipe.environment.id
    if not agent.sees:
        raise RecipeError(
            f"'{environment}' shows images, and the agent '{recipe.agent.chosen}' does not pass "
            "them to its model; use the agent 'direct' or 'react'."
        )
    if recipe.rl.steps and recipe.acting_elsewhere is not None:
        raise RecipeError(
            f"'{environment}' shows images, and {recipe.acting_elsewhere} takes tokens only; "
            "unset it."
        )
    check_sight(recipe)


def _check_curriculum(part: Curriculum) -> None:
    rule = find(Kind.CURRICULUM, part.rule)
    refuse_unmet(rule.needs, f"rl.curriculum.rule = '{part.rule}'")
    if not _chooses_tasks(rule):
        fit = [name for name, one in parts(Kind.CURRICULUM).items() if _chooses_tasks(one)]
        raise RecipeError(
            f"rl.curriculum.rule = '{part.rule}' chooses no tasks; choose one of: {', '.join(fit)}"
            + (", or set rl.horizon." if part.rule == "scaling-inter" else ".")
        )
    rule.configured(part.options)
    for level in part.levels:
        spec(level)


def _chooses_tasks(rule: Component) -> bool:
    """Return whether a rule is a function of the tasks' histories."""
    return next(iter(inspect.signature(rule.function).parameters), "") == "histories"


def _check_reference(recipe: Recipe) -> None:
    """Raise RecipeError if the reference policy that the recipe names is not read, or is none."""
    asked = recipe.rl.reference
    if asked is not None and Need.REFERENCE not in Method(chosen(recipe.rl)).needs:
        raise RecipeError(
            f"rl.reference = '{asked}' has no effect: the loss has no reference policy; set "
            "rl.loss_options.beta, or unset it."
        )
    if asked == "base" and recipe.training.weights != "lora":
        raise RecipeError(
            "rl.reference = 'base' needs training.weights = 'lora', whose base does not change; "
            "use 'start'."
        )


def _check_quantised(recipe: Recipe) -> None:
    """Check that the recipe trains nothing of a quantised base."""
    part = recipe.model
    if part.name != "tiny" and (named := NamedCheckpoint.parse(part.name).quantise) is not None:
        raise RecipeError(
            f"model.name = '{part.name}' quantises the model, which a recipe does with "
            f"model.quantise; leave it out of the name, and set model.quantise={named}."
        )
    if part.quantise is None:
        return
    asked = f"model.quantise = '{part.quantise}'"
    if recipe.training.weights != "lora":
        raise RecipeError(
            f"{asked} freezes the model's weights, and training.weights = "
            f"'{recipe.training.weights}' trains them; set training.weights=lora, or unset it."
        )
    if part.tiny is not None and part.tiny.vision is not None:
        raise RecipeError(
            f"{asked} is impossible with model.tiny.vision: models that see run by transformers' "
            "code, which keeps its own weights; unset one."
        )
    if part.backend == "transformers":
        raise RecipeError(
            f"{asked} is impossible with model.backend = 'transformers', whose code keeps its own "
            "weights; unset one."
        )
    if recipe.rl.actor is not None:
        raise RecipeError(
            f"{asked} needs the learner's process to act, not rl.actor = '{recipe.rl.actor}', "
            "which loads the dequantised policy; unset one."
        )
    if recipe.rl.critic is not None and recipe.rl.critic.kind == "separate":
        raise RecipeError(
            f"{asked} is impossible with rl.critic.kind = 'separate', which trains all weights of "
            "a copy; unset one."
        )
