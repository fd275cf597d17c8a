"""The plan of the reinforcement-learning loop that a recipe asks for."""

from __future__ import annotations

from palaestra.environments.registry import tasks
from palaestra.experiment.sections import Entropy, Horizon, Reinforcement
from palaestra.experiment.setting import Setting, typical_turns
from palaestra.learning.component import Kind, find
from palaestra.learning.consolidation import ConsolidationPlan
from palaestra.learning.control_reward import ControlReward
from palaestra.learning.curricula.horizon import scaling_inter
from palaestra.learning.curricula.practice import Attempt, Practice
from palaestra.learning.entropy import Smoother
from palaestra.learning.entropy_control import EntropyPlan
from palaestra.learning.phases import entropulse
from palaestra.learning.reinforce import ReinforcementPlan
from palaestra.learning.rewards import Overlong, Shaping
from palaestra.learning.study import StudyPlan


def plan_of(setting: Setting) -> ReinforcementPlan:
    """What the recipe says about the reinforcement-learning loop."""
    part = setting.recipe.rl
    turns = setting.turns
    if part.curriculum is not None and setting.recipe.environment.turns is None:
        turns = max([turns, *(typical_turns(level) for level in part.curriculum.levels)])
    study = StudyPlan(
        minibatches=part.minibatches,
        learning_rate=part.learning_rate,
        warmup=part.warmup,
        length=turns * setting.recipe.agent.max_tokens,
        entropy=_entropy(part.entropy, part.steps),
        recompute=part.staleness > 0 and part.recompute,
        critic_warmup=part.critic.warmup if part.critic else 0,
    )
    return ReinforcementPlan(
        steps=part.steps,
        practice=_practice(setting),
        tasks=part.tasks,
        group=part.group,
        shaping=shaping(part, turns, setting.recipe.seed),
        study=study,
        staleness=part.staleness,
        asynchronous=max(1, setting.recipe.concurrency // part.group) if part.asynchronous else 0,
        replay=part.replay,
        consolidation=_consolidation(part),
        turns=lambda step: _most_turns(part.horizon, step) or turns,
    )


def shaping(part: Reinforcement, turns: int, seed: int) -> Shaping:
    """The rewards of a recipe with that seed, in episodes of at most `turns` actions."""
    return Shaping(
        turns,
        part.turn_cost,
        part.invalid_cost,
        part.progress_reward,
        part.world_reward,
        Overlong(**part.overlong.model_dump()) if part.overlong else None,
        ControlReward(part.control, seed) if part.control else None,
    )


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


def _practice(setting: Setting) -> Practice:
    part, seed = setting.recipe.rl.curriculum, setting.recipe.seed
    if part is None:
        return Practice((setting.tasks,), seed)
    weigh = find(Kind.CURRICULUM, part.rule).configured(part.options)
    if part.tasks is not None:
        return Practice((setting.tasks,), seed, weigh, part.tasks)
    return Practice(tuple(tasks(level) for level in part.levels), seed, weigh)


def past_of(setting: Setting, first: int) -> dict[int, list[Attempt]]:
    """What the store remembers of the rollouts of the steps before `first`."""
    found: dict[int, list[Attempt]] = {step: [] for step in range(1, first)}
    part = setting.recipe.rl
    if part.curriculum is not None or part.entropulse is not None:
        for e in setting.store.summaries("rl/"):
            step = int(e.key.phase.removeprefix("rl/"))
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
