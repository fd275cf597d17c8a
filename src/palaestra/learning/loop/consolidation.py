"""Steps in which the policy imitates its own successes, between steps of reinforcement."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from palaestra.core.episode import Episode, Key
from palaestra.learning.curricula.practice import Past
from palaestra.learning.data.adapter_replies import learned_by
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.batch import imitated_rows
from palaestra.learning.loop.learner import Learner, Update
from palaestra.learning.loop.phases import Schedule, Success, demonstrations
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import pg


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    """Settings of a run's self-imitation."""

    schedule: Schedule
    batch: int  # successes per step
    learning_rate: float
    per_task: int = 1  # most successes of one task


def consolidate(
    learner: Learner,
    past: Past,
    recall: Callable[[Key], Episode | None],
    plan: ConsolidationPlan,
    *,
    step: int,
    seed: int,
) -> list[Update]:
    """Run one optimiser step on successes of the run so far, from any version of the weights.

    Source: Entropulse (ComputerRL, Lai et al. 2025), by digests; see `phases.entropulse`.

    Returns:
        the update, or nothing if nothing was solved yet.
    """
    solved = [
        Success(f"{attempt.environment} {attempt.task}", attempt.key, version=number)
        for number, found in past.items()
        for attempt in found
        if attempt.solved
    ]
    chosen = demonstrations(solved, per_task=plan.per_task, seed=seed)
    sampled = random.Random(f"{seed}/{step}").sample(chosen, min(plan.batch, len(chosen)))
    episodes = [episode for success in sampled if (episode := recall(success.key)) is not None]
    policy, network = learner.model.name, learner.model.network
    episodes = learned_by(episodes, policy, network, learner.adapters)
    rows = [row for episode in episodes for row in rows_of(episode, policy)]
    if not rows:
        return []
    weighted = imitated_rows(rows, Aggregation.TOKEN_MEAN)
    return [learner.update(weighted, pg, learning_rate=plan.learning_rate)]
