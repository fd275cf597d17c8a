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
from palaestra.learning.methods.component import Kind, Need, components, find
from palaestra.training.recipe import Recipe
from palaestra.training.reinforcement_section import (
    Critic,
    ProgressModel,
    Reinforcement,
    UtteranceCritic,
)
from palaestra.training.rollout_trees import check_tree
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


def utterance_critic_of(part: Reinforcement, method: Method) -> UtteranceCritic | None:
    """Return the critic of replies if the credit rule reads action values, or None."""
    needed = Need.ACTION_VALUE in method.needs
    return (part.utterance_critic or UtteranceCritic()) if needed else None


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
    _check_utterance_critic(recipe, method, who)
    _check_players(recipe, method)
    check_tree(recipe, method, who)
    for environment in (recipe.environment.id, *part.levels):
        check_declared(method.needs, environment, who)
    if Need.BELIEF in method.needs and recipe.acting_elsewhere is not None:
        raise RecipeError(
            f"{who} asks the policy for the probability of the known answer, which needs the "
            f"learner's process to act, not {recipe.acting_elsewhere}; unset it."
        )
    _check_rewards(recipe)
    if part.advisor is not None:
        _check_advisor(recipe)
    if part.privileged is not None:
        _check_privileged(recipe)
    return method


def _check_utterance_critic(recipe: Recipe, method: Method, who: str) -> None:
    """Raise RecipeError if a critic of replies has no effect, or cannot learn in this run."""
    part = recipe.rl
    if Need.ACTION_VALUE not in method.needs:
        if part.utterance_critic is not None:
            raise RecipeError(
                f"rl.utterance_critic has no effect: {who} reads no action values; leave it out."
            )
        return
    if part.asynchronous:
        raise RecipeError(
            f"{who} compares with fresh replies, which are sampled step by step: unset "
            "rl.asynchronous."
        )
    if set(recipe.training.learners) - {"agent"}:
        raise RecipeError(
            f"{who} has a critic of the agent's replies, and the adapters of other roles learn "
            "here; let only the agent's learn."
        )
    if recipe.model.quantise is not None:
        raise RecipeError(
            f"{who} has target networks, whose weights move, and model.quantise = "
            f"'{recipe.model.quantise}' leaves none to move; unset one."
        )
    if recipe.agent.reasoning_tokens is not None:
        raise RecipeError(
            f"{who} has a critic of whole replies, which cannot read those whose reasoning was "
            "cut: unset agent.reasoning_tokens."
        )


def _check_rewards(recipe: Recipe) -> None:
    """Raise InputError for a reward term that does not exist, or that the run cannot measure."""
    part = recipe.rl
    for name in part.rewards:
        term, who = find(Kind.REWARD, name), f"rl.rewards.{name}"
        term.configured(part.reward_options.get(name, {}))
        refuse_unmet(term.needs, who)
        if Need.ADVISOR in term.needs and part.advisor is None:
            raise RecipeError(f"{who} needs {Need.ADVISOR}: set rl.advisor, or leave it out.")
        check_declared(term.needs, recipe.environment.id, who, "leave it out")


def _check_privileged(recipe: Recipe) -> None:
    """Raise CapabilityMissing unless all environments declare the same privileged numbers."""
    names = spec(recipe.environment.id).privileged
    for one in (recipe.environment.id, *recipe.rl.levels):
        if not names or spec(one).privileged != names:
            raise CapabilityMissing(
                f"rl.privileged predicts numbers of the hidden state, and '{one}' declares "
                f"{'others' if spec(one).privileged else 'none'}; choose another environment, such "
                "as one of babyai, or leave it out."
            )


def _check_advisor(recipe: Recipe) -> None:
    """Raise InputError if an advisor cannot act in the rollouts of this recipe."""
    every = (recipe.environment.id, *recipe.rl.levels)
    if without := [one for one in every if Capability.ORACLE not in spec(one).capabilities]:
        raise CapabilityMissing(
            f"rl.advisor is the environment's expert, and '{without[0]}' has none; choose another "
            "environment, or leave it out."
        )
    name = recipe.agent.chosen.partition("?")[0]
    if name != "direct" or len(spec(recipe.environment.id).players) > 1:
        raise RecipeError(
            f"rl.advisor acts for a single agent whose reply is the action, and agent.name is "
            f"'{name}' in '{recipe.environment.id}'; use direct, with one player."
        )
    for key, value in (
        ("training.adapters", recipe.training.adapters),
        (recipe.acting_elsewhere, recipe.acting_elsewhere),
    ):
        if value:
            raise RecipeError(
                f"rl.advisor is impossible with {key}: its replies are weighed by the one policy "
                "in the learner's process; unset one."
            )


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
        (Need.BELIEF, Capability.ANSWER),
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
    if recipe.rl.rewards.get("environment") and recipe.rl.rewards.get("outcome"):
        raise RecipeError(
            f"{where}whose outcomes are the sums of their rewards already: rl.rewards.environment "
            "would count them twice; leave it out, or set rl.rewards.outcome=0."
        )
