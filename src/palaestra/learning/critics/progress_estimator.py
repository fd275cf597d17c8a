"""A progress estimator: what each turn added to the return, learned from returns alone.

One number per turn, read at the reply's last token, whose sum over the trajectory is
trained to be its return. Only the sum is constrained: a single number may have either sign.
The estimator knows the policy whose rollouts it saw; refit it as the policy changes.

Source: SPA-RL (2025), the authors' release. There the number is read from vocabulary
logits; here from hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.encoder import AT_ONCE, Reply, Scalar, parts, replies
from palaestra.learning.critics.optimiser import Optimiser
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory
from palaestra.models.local.network import DecoderNetwork


def return_loss(contributions: Tensor, trajectory: Tensor, returns: Tensor) -> Tensor:
    """Return the squared distance of each trajectory's summed contributions to its return.

    Source: SPA-RL release.

    Args:
        contributions: [K], of all turns.
        trajectory: [K] int64, which trajectory a turn belongs to.
        returns: [B].

    Returns:
        [B].
    """
    sums = contributions.new_zeros(len(returns)).index_add(0, trajectory, contributions)
    return (sums - returns).square()


@dataclass(frozen=True, slots=True)
class ProgressPlan:
    """Settings of the estimator's training."""

    batch: int = 32  # trajectories per update
    learning_rate: float = 3e-6  # the release's, for a whole language model
    at_once: int = AT_ONCE  # trajectories per pass


class ProgressEstimator:
    """An estimator of each turn's contribution: the network with its head and its optimiser."""

    def __init__(self, network: DecoderNetwork, plan: ProgressPlan | None = None, *, seed: int):
        """Make an estimator on `network`, which it trains in place.

        Args:
            seed: of the head and of the order of the trajectories.
        """
        self.plan = plan or ProgressPlan()
        self.model = Scalar(network, seed)
        self._optimiser = Optimiser(self.model, self.plan.learning_rate, seed=seed)

    def learn(
        self, trajectories: Sequence[Trajectory], rows: Sequence[Row], updates: int
    ) -> list[float]:
        """Run `updates` updates on minibatches of trajectories; return the mean loss of each.

        Raises:
            InputError: rows of other trajectories.
        """
        data = list(zip(trajectories, replies(trajectories, rows), strict=True))
        losses = []
        for _ in range(updates):
            batch = self._optimiser.minibatch(data, self.plan.batch)
            losses.append(self._optimiser.step(self._losses(batch)))
        return losses

    def contributions(
        self, trajectories: Sequence[Trajectory], rows: Sequence[Row]
    ) -> list[list[float]]:
        """Return the estimated contribution of each turn, in units of return.

        Raises:
            InputError: rows of other trajectories.
        """
        replied = replies(trajectories, rows)
        values = iter(self.model.read([reply.whole for turns in replied for reply in turns]))
        return [[next(values) for _ in turns] for turns in replied]

    def state(self) -> Parts:
        """Return everything that a resumed run needs."""
        return self._optimiser.state()

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)

    def _losses(self, batch: Sequence[tuple[Trajectory, list[Reply]]]) -> Iterator[Tensor]:
        for part in parts(batch, self.plan.at_once):
            found = self.model([reply.whole for _, replied in part for reply in replied])
            owner = [i for i, (_, replied) in enumerate(part) for _ in replied]
            losses = return_loss(
                found,
                torch.tensor(owner, device=found.device),
                torch.tensor([trajectory.total for trajectory, _ in part], device=found.device),
            )
            yield losses.sum() / len(batch)
