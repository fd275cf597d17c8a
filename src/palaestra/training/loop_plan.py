"""The plan of the reinforcement-learning loop that a recipe asks for."""

from __future__ import annotations

from palaestra.environments.registry import tasks
from palaestra.evaluation.statistics.player_results import has_success
from palaestra.learning.curricula.horizon import scaling_inter
from palaestra.learning.curricula.practice import Attempt, Practice
from palaestra.learning.data.advised import AdvicePlan
from palaestra.learning.data.control_reward import ControlReward
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.loop.consolidation import ConsolidationPlan
from palaestra.learning.loop.phases import entropulse
from palaestra.learning.loop.reinforce import ReinforcementPlan
from palaestra.learning.loop.trainer_step import FittingProgress, InTurns, TrainerStepPlan
from palaestra.learning.losses.entropy import Smoother
from palaestra.learning.losses.entropy_control import EntropyPlan
from palaestra.learning.methods.component import Kind, find
from palaestra.training.method import progress_model_of
from palaestra.training.reinforcement_section import Advisor, Entropy, Horizon, Reinforcement
from palaestra.training.role_adapters import learning
from palaestra.training.run_context import RunContext, typical_turns


def plan_of(context: RunContext) -> ReinforcementPlan:
    """Return the reinforcement-learning plan of a run's recipe."""
    part = context.recipe.rl
    turns = context.turns
    if part.curriculum is not None and context.recipe.environment.turns is None:
        turns = max([turns, *(typical_turns(level) for level in part.curriculum.levels)])
    trainer_step = TrainerStepPlan(
        minibatches=part.minibatches,
        learning_rate=part.learning_rate,
        warmup=part.warmup,
        length=turns * context.recipe.agent.max_tokens,
        entropy=_entropy(part.entropy, part.steps),
        recompute=(part.staleness > 0 and part.recompute) or part.advisor is not None,
        critic_warmup=part.critic.warmup if part.critic else 0,
        progress=_progress(context),
        in_turns=_in_turns(context),
        conflict=part.conflict,
        advice=advice_plan(part.advisor),
        privileged=part.predicts_privileged,
    )
    return ReinforcementPlan(
        name=context.record,
        steps=part.steps,
        practice=_practice(context),
        tasks=part.tasks,
        group=part.group,
        shaping=shaping(part, turns, context.recipe.seed),
        trainer_step=trainer_step,
        staleness=part.staleness,
        asynchronous=max(1, context.recipe.concurrency // part.group) if part.asynchronous else 0,
        replay=part.success_replay,
        consolidation=_consolidation(part),
        turns=lambda step: _most_turns(part.horizon, step) or turns,
        has_success=has_success(context.recipe.environment.id),
    )


def _progress(context: RunContext) -> FittingProgress | None:
    found = progress_model_of(context.recipe.rl, context.method)
    return None if found is None else FittingProgress(found.updates, found.warmup)


def _in_turns(context: RunContext) -> InTurns | None:
    every, own = context.recipe.training.alternate, learning(context.recipe, context.learners)
    return None if every is None else InTurns(tuple(own.values()), every)


def advice_plan(part: Advisor | None) -> AdvicePlan | None:
    """Return how the advisor's turns are learned; None without an advisor."""
    if part is None:
        return None
    return AdvicePlan(part.probability, part.anneal, whole=part.weight == "rollout")


def shaping(part: Reinforcement, turns: int, seed: int) -> Shaping:
    """Return the rewards of a recipe, for episodes of at most `turns` actions."""
    control = ControlReward(part.control, seed) if part.control else None
    return Shaping(turns, part.rewards, part.reward_options, control)


def _consolidation(part: Reinforcement) -> ConsolidationPlan | None:
    pulse = part.entropulse
    if pulse is None:
        return None
    schedule = entropulse(
        rl_steps=pulse.rl_steps,
        sft_steps=pulse.sft_steps,
        cycles=pulse.cycles,
        entropy=pulse.entropy,
        plateau=pulse.plateau,
    )
    rate = pulse.learning_rate or part.learning_rate / 2
    return ConsolidationPlan(schedule, pulse.batch, rate)


def _practice(context: RunContext) -> Practice:
    part, seed = context.recipe.rl.curriculum, context.stage_seed
    if part is None:
        return Practice((context.tasks,), seed)
    weigh = find(Kind.CURRICULUM, part.rule).configured(part.options)
    if part.tasks is not None:
        return Practice((context.tasks,), seed, weigh, part.tasks)
    return Practice(tuple(tasks(level) for level in part.levels), seed, weigh)


def past_attempts(context: RunContext, first: int) -> dict[int, list[Attempt]]:
    """Return the stored rollouts of each step before `first`."""
    found: dict[int, list[Attempt]] = {step: [] for step in range(1, first)}
    part = context.recipe.rl
    if part.curriculum is not None or part.entropulse is not None:
        own = f"{context.record}/"
        for e in context.store.summaries(own):
            step = int(e.key.phase.removeprefix(own))
            if step < first and e.outcome.scored:
                found[step].append(Attempt(e.key, e.environment, e.task, e.outcome.solved))
    return found


def _entropy(part: Entropy | None, steps: int) -> EntropyPlan | None:
    if part is None:
        return None
    return EntropyPlan(part.bonus, part.smoothing, Smoother(part.form or Smoother.SQUARED), steps)


def _most_turns(horizon: Horizon | None, step: int) -> int | None:
    if horizon is None:
        return None
    return scaling_inter(step, horizons=horizon.turns, every=horizon.every)
