"""The algorithm of a recipe, and whether its environment supports it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Capability
from palaestra.core.errors import CapabilityMissing, GroupTooSmall, RecipeError
from palaestra.environments.registry import spec, states_goals
from palaestra.learning.credit import compose
from palaestra.learning.credit.per_player import JOINT
from palaestra.learning.methods.algorithms import Algorithm, Method
from palaestra.learning.methods.component import Kind, Need, components
from palaestra.training.recipe import Recipe
from palaestra.training.reinforcement_section import Critic, ProgressModel, Reinforcement
from palaestra.training.usable_parts import named, refuse_unmet

PARTS = ("credit", "loss", "aggregation", "filter", "correction", "whiten")
OPTIONS = ("credit_options", "loss_options", "filter_options", "correction_options")


def chosen(part: Reinforcement) -> Algorithm:
    """Return the named algorithm with the parts that the recipe replaces.

    A replaced part starts from its own defaults, not from those of the algorithm.

    Raises:
        RecipeError, UnknownName: a recipe cannot name this algorithm.
    """
    base = named(part.algorithm)
    if part.loss in components(Kind.PREFERENCE):
        raise RecipeError(
            f"rl.loss = '{part.loss}' compares responses; write a stage that does 'prefer'."
        )
    parts: dict[str, Any] = {
        name: getattr(part, name) for name in PARTS if getattr(part, name) is not None
    }
    options: dict[str, Any] = {}
    for name in OPTIONS:
        kept = {} if name.removesuffix("_options") in parts else dict(getattr(base, name))
        options[name] = {**kept, **getattr(part, name)}
    return replace(base, **parts, **options)


def critic_of(part: Reinforcement, method: Method) -> Critic | None:
    """Return the critic if the credit rule reads values (the default one if unset), or None."""
    return (part.critic or Critic()) if Need.VALUE in method.needs else None


def progress_model_of(part: Reinforcement, method: Method) -> ProgressModel | None:
    """Return the progress model if the credit rule reads contributions, or None."""
    return (part.progress_model or ProgressModel()) if Need.CONTRIBUTION in method.needs else None


def check_method(recipe: Recipe) -> Method:
    """Return the configured method after checking that everything it needs is available.

    Raises:
        InputError: a part or option is unknown, or a need is not met.
    """
    part = recipe.rl
    method = Method(chosen(part))
    who = f"rl.credit = '{method.algorithm.credit}'"
    refuse_unmet(method.needs, who)
    _check_groups(part, method, who)
    if part.asynchronous and Need.GREEDY in method.needs:
        raise RecipeError(
            f"{who} compares with greedy rollouts, which are made step by step: unset "
            "rl.asynchronous."
        )
    if part.critic is not None and Need.VALUE not in method.needs:
        raise RecipeError(f"rl.critic has no effect: {who} reads no values; leave it out.")
    if part.progress_model is not None and Need.CONTRIBUTION not in method.needs:
        raise RecipeError(
            f"rl.progress_model has no effect: {who} reads no contributions; leave it out."
        )
    _check_players(recipe, method)
    check_declared(method.needs, recipe.environment.id, who)
    if part.progress_reward:
        check_declared([Need.PROGRESS], recipe.environment.id, "rl.progress_reward", "set it to 0")
    return method


def _check_groups(part: Reinforcement, method: Method, who: str) -> None:
    """Raise GroupTooSmall if there are too few rollouts to compare."""
    if Need.GROUP in method.needs:
        credit = compose.needs(method.algorithm.credit, method.algorithm.credit_options)
        whose = who if Need.GROUP in credit else f"rl.filter = '{method.algorithm.filter}'"
        for key, size in (("group", part.group), ("quorum", part.quorum)):
            if size is not None and size < 2:
                raise GroupTooSmall(
                    f"rl.{key} = {size}, but {whose} compares the rollouts of a group with each "
                    f"other; set rl.{key} to 2 or more."
                )
    if Need.OTHERS in method.needs and part.tasks * (part.quorum or part.group) < 2:
        raise GroupTooSmall(
            f"{who} with the batch as baseline compares with other rollouts, but a batch has only "
            "one; set rl.tasks or rl.group to 2 or more."
        )


def check_declared(
    needed: Collection[Need],
    environment: str,
    who: str,
    remedy: str = "choose another rule or another environment",
) -> None:
    """Raise CapabilityMissing if the environment does not declare what a part reads."""
    if Need.GOAL in needed and not states_goals(environment):
        raise CapabilityMissing(
            f"{who} needs {Need.GOAL}, but the tasks of '{environment}' state none; {remedy}."
        )
    has = spec(environment).capabilities
    for need, capability in (
        (Need.ANCHOR, Capability.STATE_KEY),
        (Need.PROGRESS, Capability.PROGRESS),
    ):
        if need in needed and capability not in has:
            raise CapabilityMissing(
                f"{who} needs {need}, but '{environment}' does not declare '{capability}'; "
                f"{remedy}."
            )


def _check_players(recipe: Recipe, method: Method) -> None:
    """Raise RecipeError for parts that cannot read the separate results of several players."""
    players = spec(recipe.environment.id).players
    if len(players) < 2:
        return
    where = f"'{recipe.environment.id}' has the players {', '.join(players)}, "
    for rule in compose.names(method.algorithm.credit):
        if rule in JOINT or Need.GREEDY in compose.needs(rule):
            raise RecipeError(
                f"{where}each with a result of its own, which the credit rule '{rule}' does not "
                "read; choose spiral, or a rule that judges one player's turns at a time, such as "
                "rloo, grpo, reinforce or return_to_go."
            )
    if recipe.rl.environment_reward:
        raise RecipeError(
            f"{where}whose outcomes are what the environment gives to each already: "
            "rl.environment_reward has no effect there; set it to 0."
        )
