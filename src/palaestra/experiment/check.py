"""Everything about a recipe that can be found wrong before anything starts."""

from __future__ import annotations

import inspect

from palaestra.agents.registry import make_agent
from palaestra.core.environment import Capability
from palaestra.core.errors import RecipeError
from palaestra.environments.registry import make, tasks
from palaestra.experiment.acting import check_actor
from palaestra.experiment.method import check_declared, check_method, chosen
from palaestra.experiment.reach import parts, refuse_unmet
from palaestra.experiment.recipe import Recipe
from palaestra.experiment.recorded import SPEAKER, check_recorded
from palaestra.experiment.sections import Curriculum
from palaestra.learning.algorithms import Method
from palaestra.learning.component import Component, Kind, find
from palaestra.models.registry import device
from palaestra.models.weights import check_name
from palaestra.rollout.gateway.agent import GatewayAgent


def check_recipe(recipe: Recipe) -> None:
    """Look up every name and weigh every number against the others.

    Raises:
        InputError: the first thing that cannot work.
    """
    agent = make_agent(recipe.agent.chosen)
    if recipe.deterministic and isinstance(agent, GatewayAgent):
        raise RecipeError(
            "deterministic = true cannot be kept with an agent that is a program of its own "
            "(agent.command): when it asks is not ours to say; unset one."
        )
    Method(chosen(recipe.rl))
    if recipe.model.name != "tiny":
        check_name(recipe.model.name)
    if recipe.model.device == "cuda":
        device("cuda")
    world = make(recipe.environment.id)
    capabilities = world.capabilities
    world.close()
    if recipe.environment.transfer is not None:
        tasks(recipe.environment.transfer)
    part = recipe.imitation
    examples = find(Kind.EXAMPLES, part.examples)
    examples.configured(part.examples_options)
    if part.demonstrations:
        refuse_unmet(examples.needs, f"imitation.examples = '{part.examples}'")
    if part.demonstrations and part.speaker == "expert" and Capability.ORACLE not in capabilities:
        raise RecipeError(
            f"'{recipe.environment.id}' has no expert to imitate; train with --no-imitation."
        )
    if part.demonstrations and part.speaker == SPEAKER:
        check_recorded(part)
    elif part.demonstrations:
        who = f"imitation.examples = '{part.examples}' with imitation.examples_options"
        check_declared(examples.needs_with(part.examples_options), recipe.environment.id, who)
    if recipe.rl.steps:
        check_method(recipe)
        check_actor(recipe.rl.actor)
        if recipe.rl.curriculum is not None:
            _check_curriculum(recipe.rl.curriculum)
    if recipe.agent.max_tokens >= recipe.model.context:
        raise RecipeError(
            f"agent.max_tokens = {recipe.agent.max_tokens} leaves no room for a prompt in "
            f"model.context = {recipe.model.context}."
        )


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
        make(level).close()


def _chooses_tasks(rule: Component) -> bool:
    """Whether a rule is a function of the tasks' histories."""
    return next(iter(inspect.signature(rule.function).parameters), "") == "histories"
