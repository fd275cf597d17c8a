"""The stage that learns action values of recorded episodes offline (ILQL), and their use."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from torch import Tensor

from palaestra.core.errors import InputError, PalaestraError
from palaestra.learning.critics.ilql import Ilql, IlqlPlan, imitation_weights, steered_logits
from palaestra.learning.data.examples.example import Example, usable
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.data.trajectory import Trajectory
from palaestra.models.local.engine import MEMORY
from palaestra.models.local.guidance import Guide
from palaestra.store import checkpoint
from palaestra.training.loop_plan import shaping
from palaestra.training.reward_models import saved_parts
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Value
from palaestra.training.stages.learning_updates import rows_learned
from palaestra.training.stages.reading import read
from palaestra.training.stages.testing import tokens_of


async def value(
    context: RunContext, part: Value, made: Made, ready: Callable[[], Awaitable[None]]
) -> None:
    """Learn the stage's action values, unless that is done.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        ready: puts the policy's latest version in place, with which the critic begins.

    Raises:
        InputError: a source has nothing to show, or nothing was earned in what it shows.
    """
    record = context.record
    if (done := context.accounts.is_done(record)) and saved_parts(context, record) is not None:
        return
    await ready()
    started = time.monotonic()
    shown = await read(context, part.sources, made)
    rewards = shaping(context.recipe.rl, context.turns, context.recipe.seed)
    trajectories: list[Trajectory] = []
    rows: list[Row] = []
    for one in shown:
        for episode in usable(one.episodes, one.speaker):
            trajectories.append(rewards.trajectory(episode, one.speaker))
            rows += rows_of(episode, one.speaker)
    rows_learned(context, rows, shown)
    if len({trajectory.total for trajectory in trajectories}) < 2:
        raise InputError(
            f"{record}: all {len(trajectories)} episodes earned the same, so no action is worth "
            "more than another; explore more tasks."
        )
    critic = Ilql(copy.deepcopy(context.policy.network), _plan(part), seed=context.stage_seed)
    with context.reporter.stage(record, part.updates, "updates") as line:
        for step, loss in enumerate(critic.learn(trajectories, rows, part.updates), 1):
            context.add_metrics(record, step, {"loss": loss})
            line.show(step, {"loss": f"{loss:.3f}"}, total=part.updates)
            await asyncio.sleep(0)  # lets Ctrl-C through
    context.store.sync()
    checkpoint.save(context.run.checkpoints, record, critic.state(), {})
    if not done:
        counted = tokens_of([e for one in shown if one.counted for e in one.episodes])
        seconds = time.monotonic() - started
        trained = sum(row.trained for row in rows)
        context.accounts.finish_stage(record, seconds, **counted, trained=trained)


def weighed_by_advantages(
    context: RunContext, record: str, examples: Sequence[Example], beta: float
) -> list[Example]:
    """Return the examples, each token weighed by its advantage; see `imitation_weights`.

    Args:
        context: of the stage that imitates.
        record: of the stage that learned the action values.
        examples: what is imitated.
        beta: inverse temperature.

    Raises:
        PalaestraError: the stage's checkpoint is gone, or damaged.
    """
    advantages = _saved(context, record).advantages([example.row for example in examples])
    return [
        replace(example, factors=imitation_weights(found, beta=beta).tolist())
        for example, found in zip(examples, advantages, strict=True)
    ]


def guide_of(context: RunContext, record: str, beta: float) -> Guide:
    """Return what steers the policy's replies by action values; see `steered_logits`.

    Args:
        context: of the stage that acts.
        record: of the stage that learned the action values.
        beta: weight of the advantages.

    Raises:
        PalaestraError: the stage's checkpoint is gone, or damaged.
        InputError: the model's cache cannot be shared.
    """
    critic, engine = _saved(context, record).critic, context.policy.engine

    def steered(logits: Tensor, hidden: Tensor) -> Tensor:
        q, v = critic(critic.network.normed(hidden).to(critic.network.wide_dtype))
        return steered_logits(logits.to(q.dtype).log_softmax(dim=1), q, v, beta=beta)

    return Guide(critic.network, steered, memory=MEMORY, context=engine.context, slots=engine.slots)


def _saved(context: RunContext, record: str) -> Ilql:
    """Return the action values that a stage has learned."""
    parts = saved_parts(context, record)
    if parts is None:
        raise PalaestraError(
            f"The action values of '{record}' are gone from the run's checkpoints; begin a new run."
        )
    critic = Ilql(copy.deepcopy(context.policy.network), seed=0)
    critic.restore(parts)
    return critic


def _plan(part: Value) -> IlqlPlan:
    return IlqlPlan(
        gamma=part.discount,
        tau=part.expectile,
        conservative=part.conservative,
        polyak=part.polyak,
        batch=part.batch,
        learning_rate=part.learning_rate,
    )
