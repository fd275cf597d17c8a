"""verl's losses of a whole batch, and the weights that ours has for the same aggregation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from palaestra.learning.losses.aggregation import Aggregation
from tests.peers.made import Batch, Policies, gradient

LENGTH = 40  # the constant of the last mode
MODES = {
    "token-mean": Aggregation.TOKEN_MEAN,
    "seq-mean-token-mean": Aggregation.ROLLOUT_TOKEN_MEAN,
    "seq-mean-token-sum": Aggregation.ROLLOUT_TOKEN_SUM,
    "seq-mean-token-sum-norm": Aggregation.ROLLOUT_TOKEN_NORM,
}


def weights(batch: Batch, mode: str) -> Tensor:
    """The weight of each sampled token in our sum, [M]."""
    length = LENGTH if mode == "seq-mean-token-sum-norm" else None
    return batch.weights(MODES[mode], length)


def actor(**settings: Any) -> Any:
    """The configuration that verl's losses read."""
    from verl.workers.config import ActorConfig

    fixed = {"strategy": "fsdp", "rollout_n": 1, "use_dynamic_bsz": True}
    return ActorConfig(**fixed, global_batch_info={"loss_scale_factor": LENGTH}, **settings)


def their_loss(
    name: str, batch: Batch, numbers: Policies, mode: str, config: Any, weight: Tensor | None = None
) -> Tensor:
    """A loss by its registered name, or "reinforce"; a scalar with gradient."""
    from verl.trainer.ppo import core_algos as core

    reinforce = core.compute_policy_loss_reinforce  # the only one without a registered name
    loss = reinforce if name == "reinforce" else core.get_policy_loss_fn(name)
    total, _ = loss(
        numbers.lp_old,
        numbers.lp,
        numbers.advantage,
        batch.mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=weight,
    )
    return total


def theirs(
    name: str, batch: Batch, numbers: Policies, mode: str, config: Any, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same, and its gradient by all log-probabilities [B, T]."""
    total = their_loss(name, batch, numbers, mode, config, weight)
    return total, gradient(total, numbers)


def correction_weights(
    batch: Batch, numbers: Policies, level: str, threshold: float | str, normalise: bool = False
) -> Tensor:
    """verl's importance weights, [B, T]."""
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    found, _ = compute_rollout_correction_weights(
        numbers.lp_old - numbers.lp_beh, batch.mask, level, threshold, normalise
    )
    return found
