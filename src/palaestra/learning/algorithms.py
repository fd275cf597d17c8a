"""Named algorithms: a credit rule, a loss per token, and how rollouts are weighted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from palaestra.core.errors import UnknownName
from palaestra.learning.credit import group_normalised, leave_one_out
from palaestra.learning.learner import TokenLoss
from palaestra.learning.losses import Aggregation, loop_clip, policy_gradient, ppo_clip


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to turn a group's returns into a gradient."""

    summary: str
    source: str
    credit: Callable[[Tensor], Tensor]  # returns [G] of one group -> advantages [G]
    loss: TokenLoss
    aggregation: Aggregation


ALGORITHMS: dict[str, Algorithm] = {
    "loop": Algorithm(
        "leave-one-out advantages, log-symmetric clip per token, every rollout weighs the same",
        "Chen et al. 2025, as released in ml-loop",
        leave_one_out,
        loop_clip,
        Aggregation.ROLLOUT_TOKEN_MEAN,
    ),
    "rloo": Algorithm(
        "leave-one-out advantages, REINFORCE on whole rollouts, one update per batch",
        "Ahmadian et al. 2024, as in verl and TRL",
        leave_one_out,
        policy_gradient,
        Aggregation.ROLLOUT_TOKEN_SUM,
    ),
    "grpo": Algorithm(
        "advantages in group standard deviations (n - 1), PPO clip 0.2, original weighting",
        "Shao et al. 2024, as in verl (no KL term)",
        group_normalised,
        ppo_clip,
        Aggregation.ROLLOUT_TOKEN_MEAN,
    ),
}


def algorithm(name: str) -> Algorithm:
    """Raises UnknownName."""
    if name not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
