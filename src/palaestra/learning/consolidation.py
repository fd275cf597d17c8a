"""Steps in which the policy imitates its own successes, between steps of reinforcement."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from palaestra.core.episode import Episode, Key
from palaestra.learning.batch import imitated_rows
from palaestra.learning.curricula.practice import Past
from palaestra.learning.learner import Learner, Update
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy import pg
from palaestra.learning.phases import Schedule, Success, demonstrations
from palaestra.learning.rows import rows_of


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    """When and how a run imitates itself."""

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
    """One optimiser step on successes of the run so far, whichever weights lived them.

    Source: Entropulse (ComputerRL, Lai et al. 2025), by digests; see `phases.entropulse`.

    Returns:
        the update, or nothing where nothing was solved yet.
    """
    solved = [
        Success(f"{attempt.environment} {attempt.task}", attempt.key, version=number)
        for number, found in past.items()
        for attempt in found
        if attempt.solved
    ]
    chosen = demonstrations(solved, per_task=plan.per_task, seed=seed)
    drawn = random.Random(f"{seed}/{step}").sample(chosen, min(plan.batch, len(chosen)))
    episodes = [episode for success in drawn if (episode := recall(success.key)) is not None]
    rows = [row for episode in episodes for row in rows_of(episode, learner.model.name)]
    if not rows:
        return []
    weighted = imitated_rows(rows, Aggregation.TOKEN_MEAN)
    return [learner.update(weighted, pg, learning_rate=plan.learning_rate)]
