"""Models that learn beside the policy in RL: each begins as a copy of it, and shares no weights."""

from __future__ import annotations

import copy

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.critics.archer import Archer, ArcherPlan
from palaestra.learning.critics.progress_estimator import ProgressEstimator, ProgressPlan
from palaestra.learning.critics.separate_critic import SeparateCritic
from palaestra.learning.loop.fresh_replies import FreshReplies
from palaestra.training.method import critic_of, progress_model_of, utterance_critic_of
from palaestra.training.ranks import memory_of_rank
from palaestra.training.run_context import RunContext


def separate_critic(context: RunContext) -> SeparateCritic | None:
    """Create the critic of states if the recipe asks for a separate one, else return None."""
    part, settings = context.recipe.training, critic_of(context.recipe.rl, context.method)
    if settings is None or settings.kind != "separate":
        return None
    memory = memory_of_rank(context.recipe)
    optimisation = Optimisation(settings.learning_rate, memory, part.clip_norm)
    return SeparateCritic(context.policy.network, optimisation)


def progress_model(context: RunContext) -> ProgressEstimator | None:
    """Create the progress model if the credit rule reads contributions, else return None."""
    settings = progress_model_of(context.recipe.rl, context.method)
    if settings is None:
        return None
    network = copy.deepcopy(context.policy.network)
    plan = ProgressPlan(settings.batch, settings.learning_rate)
    return ProgressEstimator(network, plan, seed=context.stage_seed)


def utterance_critic(context: RunContext) -> Archer | None:
    """Create the critic of replies if the credit rule reads action values, else return None."""
    settings = utterance_critic_of(context.recipe.rl, context.method)
    if settings is None:
        return None
    plan = ArcherPlan(
        gamma=settings.discount,
        tau=settings.polyak,
        updates=settings.updates,
        batch=settings.batch,
        buffer=settings.replay,
        warmup=settings.warmup,
        learning_rate=settings.learning_rate,
    )
    fresh = FreshReplies(context.policy, context.sampling())
    network = copy.deepcopy(context.policy.network)
    return Archer(network, fresh, plan, seed=context.stage_seed)
