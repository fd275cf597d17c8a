"""The reinforcement-learning loop: roll out, credit, learn, again.

One step draws tasks, lives a group of rollouts of each with the present policy,
compares each rollout with its siblings, and moves the weights a few times. The
loop holds no state but the step number and the learner: everything else is
derived from seeds, so a resumed run goes on exactly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from palaestra.core.episode import Episode, Key
from palaestra.core.session import derive_seed
from palaestra.core.task import Split, TaskSet
from palaestra.learning.algorithms import Algorithm
from palaestra.learning.batch import advantages, split_by_rollout, trained_rows
from palaestra.learning.learner import Learner, Update
from palaestra.learning.rewards import Shaping
from palaestra.learning.rows import rows_of
from palaestra.rollout.runner import Job


@dataclass(frozen=True, slots=True)
class ReinforcementPlan:
    """What one run of the loop does."""

    steps: int
    tasks: int  # tasks per step
    group: int  # rollouts per task
    minibatches: int  # optimiser steps per step
    learning_rate: float
    warmup: int  # steps over which the learning rate rises
    shaping: Shaping


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did: its number, its rollouts, and the figures to log."""

    step: int  # 1-based
    episodes: list[Episode]
    metrics: dict[str, float]


async def reinforce(
    learner: Learner,
    live: Callable[[Sequence[Job]], Awaitable[list[Episode]]],
    tasks: TaskSet,
    algorithm: Algorithm,
    plan: ReinforcementPlan,
    *,
    seed: int,
    first: int,
    after: Callable[[StepResult], bool],
) -> None:
    """Run steps `first` to `plan.steps` (1-based); `after` a step says whether to go on.

    `live` makes the episodes of a step (`Rollout.run`, or something around it).

    Raises:
        TooManyFaults: most of a step's episodes broke through no fault of the agent.
    """
    for step in range(first, plan.steps + 1):
        started = time.monotonic()
        episodes = await live(jobs_of(step, tasks, plan, seed))
        acted = time.monotonic()
        updates = learn(learner, episodes, algorithm, plan, step, seed)
        metrics = figures(episodes, updates, plan.shaping)
        metrics["rollout_seconds"] = acted - started
        metrics["learn_seconds"] = time.monotonic() - acted
        if not after(StepResult(step, episodes, metrics)):
            return


def jobs_of(step: int, tasks: TaskSet, plan: ReinforcementPlan, seed: int) -> list[Job]:
    """The rollouts of one step: `group` of each of `tasks` training tasks, none seen before."""
    base = derive_seed("tasks", seed) % 1_000_000 * 1_000
    start = base + (step - 1) * plan.tasks
    return [
        Job(Key(f"rl/{step}", g, member), task)
        for g, task in enumerate(tasks.take(Split.TRAIN, plan.tasks, start))
        for member in range(plan.group)
    ]


def learn(
    learner: Learner,
    episodes: list[Episode],
    algorithm: Algorithm,
    plan: ReinforcementPlan,
    step: int,
    seed: int,
) -> list[Update]:
    """Credit the rollouts and move the weights once per minibatch."""
    credit = advantages(episodes, algorithm, plan.shaping)
    policy = learner.model.name
    rows = [row for e in episodes if e.key in credit for row in rows_of(e, policy)]
    order = sorted(credit, key=str)
    random.Random(f"{seed}/{step}").shuffle(order)
    updates = []
    for number, batch in enumerate(split_by_rollout(rows, plan.minibatches, order)):
        if not batch:
            continue
        done = (step - 1) + (number + 1) / plan.minibatches
        rate = plan.learning_rate * min(1.0, done / plan.warmup)
        weighted = trained_rows(batch, credit, algorithm.aggregation)
        updates.append(learner.update(weighted, algorithm.loss, learning_rate=rate))
    return updates


def figures(episodes: list[Episode], updates: list[Update], shaping: Shaping) -> dict[str, float]:
    """The numbers of one step: of its rollouts, and means over its updates."""
    scored = [e for e in episodes if e.outcome.scored]
    turns = sum(e.usage.turns for e in scored)
    values: dict[str, float] = {
        "success": fmean(e.outcome.solved for e in scored),
        "reward": fmean(shaping.episode_return(e) for e in scored),
        "turns": turns / len(scored),
        "invalid": sum(e.invalid_turns for e in scored) / max(turns, 1),
        "unscored": len(episodes) - len(scored),
        "sampled_tokens": sum(e.usage.sampled_tokens for e in episodes),
        "prompt_tokens": sum(e.usage.prompt_tokens for e in episodes),
    }
    if updates:
        for name in asdict(updates[0]):
            values[name] = fmean(getattr(update, name) for update in updates)
        for name in ("tokens", "processed"):
            values[name] *= len(updates)
        # the first update starts at the sampler's own weights: what remains is arithmetic
        values["gap"], values["gap_max"] = updates[0].gap, updates[0].gap_max
    return values
