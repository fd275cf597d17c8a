"""The algorithm that a recipe asks for, and whether its environment can serve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Capability
from palaestra.core.errors import CapabilityMissing, GroupTooSmall, RecipeError
from palaestra.environments.registry import make
from palaestra.experiment.recipe import Recipe
from palaestra.experiment.sections import Critic, Reinforcement
from palaestra.learning.algorithms import Algorithm, Method, algorithm
from palaestra.learning.component import Need
from palaestra.learning.credit import compose
from palaestra.learning.credit.players import JOINT

PARTS = ("credit", "loss", "aggregation", "filter", "correction", "whiten")
OPTIONS = ("credit_options", "loss_options", "filter_options", "correction_options")


def chosen(part: Reinforcement) -> Algorithm:
    """The named algorithm, with the parts that the recipe replaces.

    A replaced part starts from its own defaults, not from those of the algorithm.
    """
    base = algorithm(part.algorithm)
    parts: dict[str, Any] = {
        name: getattr(part, name) for name in PARTS if getattr(part, name) is not None
    }
    options: dict[str, Any] = {}
    for name in OPTIONS:
        kept = {} if name.removesuffix("_options") in parts else dict(getattr(base, name))
        options[name] = {**kept, **getattr(part, name)}
    return replace(base, **parts, **options)


def critic_of(part: Reinforcement, method: Method) -> Critic | None:
    """The critic, where the credit rule reads values; with default settings if none are given."""
    return (part.critic or Critic()) if Need.VALUE in method.needs else None


def check_method(recipe: Recipe) -> Method:
    """The configured method, once everything that it needs is known to be there.

    Raises:
        InputError: an unknown part or option, or a need that nothing meets; says which and how.
    """
    part = recipe.rl
    method = Method(chosen(part))
    who = f"rl.credit = '{method.algorithm.credit}'"
    if Need.GROUP in method.needs and part.group < 2:
        raise GroupTooSmall(
            f"rl.group = {part.group}, but {who} compares the rollouts of a group with each other; "
            "set rl.group to 2 or more."
        )
    if part.asynchronous and Need.GREEDY in method.needs:
        raise RecipeError(
            f"{who} compares with greedy rollouts, which are made step by step: unset "
            "rl.asynchronous."
        )
    if part.critic is not None and Need.VALUE not in method.needs:
        raise RecipeError(f"rl.critic has no effect: {who} reads no values; leave it out.")
    _check_world(recipe, method, who)
    for need, remedy in UNMET.items():
        if need in method.needs:
            raise RecipeError(f"{who} needs {need}, which a training run cannot supply: {remedy}")
    return method


UNMET = {
    Need.BELIEF: "beliefs come from a probe of a known answer; compare it on a trace instead.",
    Need.CONTRIBUTION: "train a progress model and fill `Turn.contribution` in a loop of your own.",
    Need.TREE: "samples that share parents come from a tree search, not from plain rollouts.",
}


def _check_world(recipe: Recipe, method: Method, who: str) -> None:
    world = make(recipe.environment.id)
    has, players = world.capabilities, world.players
    world.close()
    if len(players) > 1:
        _check_players(recipe, method, players)
    for need, capability in (
        (Need.ANCHOR, Capability.STATE_KEY),
        (Need.PROGRESS, Capability.PROGRESS),
        (Need.SNAPSHOT, Capability.SNAPSHOT),
    ):
        if need in method.needs and capability not in has:
            raise CapabilityMissing(
                f"{who} needs {need}, but '{recipe.environment.id}' does not declare "
                f"'{capability}'; choose another rule or another environment."
            )
    if recipe.rl.progress_reward and Capability.PROGRESS not in has:
        raise CapabilityMissing(
            f"rl.progress_reward needs progress, which '{recipe.environment.id}' does not declare; "
            "set it to 0."
        )


def _check_players(recipe: Recipe, method: Method, players: Sequence[str]) -> None:
    """Each player has a result of its own: what cannot read it is refused."""
    where = f"'{recipe.environment.id}' has the players {', '.join(players)}, "
    for rule in compose.names(method.algorithm.credit):
        if rule in JOINT or Need.GREEDY in compose.needs(rule):
            raise RecipeError(
                f"{where}each with a result of its own, which the credit rule '{rule}' does not "
                "read; choose spiral, or a rule that judges one player's turns at a time, such as "
                "rloo, grpo, reinforce or return_to_go."
            )
    if recipe.rl.world_reward:
        raise RecipeError(
            f"{where}whose outcomes are what the environment gives to each already: "
            "rl.world_reward has no effect there; set it to 0."
        )
