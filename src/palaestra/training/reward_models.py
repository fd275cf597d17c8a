"""Reward models that stages of a run have written, read from their checkpoints."""

from __future__ import annotations

import copy
from typing import Any

from palaestra.core.errors import PalaestraError
from palaestra.learning.critics.reward_model import RewardModel
from palaestra.store import checkpoint
from palaestra.training.run_context import RunContext


def saved_model(context: RunContext, record: str) -> RewardModel:
    """Return the reward model that a stage has written.

    Raises:
        PalaestraError: its checkpoint is gone, or damaged.
    """
    parts = saved_parts(context, record)
    if parts is None:
        raise PalaestraError(
            f"The reward model of '{record}' is gone from the run's checkpoints; begin a new run."
        )
    model = RewardModel(copy.deepcopy(context.policy.network), seed=0)
    model.restore(parts)
    return model


def saved_parts(context: RunContext, record: str) -> dict[str, Any] | None:
    for name in context.checkpoints(record):
        try:
            return checkpoint.load(context.run.checkpoints, name).tensors
        except checkpoint.CorruptCheckpoint as error:
            context.reporter.say(str(error))
    return None
