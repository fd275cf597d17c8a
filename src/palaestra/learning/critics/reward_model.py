"""A reward model: how good a rollout is, learned from outcomes or from preferences.

A network of its own with a head that reads one number at the last token of a reply. As a success
predictor the number is the logit of the probability that the rollout will succeed, at every turn
(Cobbe et al. 2021 at tokens; SalesRLAgent 2025 at turns of a conversation). As a preference model
it is a score whose difference is the logit that one rollout is preferred to another (Bradley and
Terry 1952; Christiano et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.encoder import AT_ONCE, Scalar, parts
from palaestra.learning.critics.optimiser import Optimiser
from palaestra.models.local.network import DecoderNetwork

Tokens = Sequence[int]
"""A rollout's tokens up to the end of a reply."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One rollout's replies, each with all before it, and whether it succeeded in the end."""

    replies: tuple[Tokens, ...]
    success: float  # in [0, 1]


def success_loss(logits: Tensor, success: Tensor) -> Tensor:
    """Return the cross-entropy of predicted success: [N], [N] in [0, 1] -> [N], nats."""
    return F.binary_cross_entropy_with_logits(logits, success, reduction="none")


def preference_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return minus the log-probability that the chosen one is preferred: [N], [N] -> [N], nats."""
    return -F.logsigmoid(chosen - rejected)


class RewardModel:
    """A network with a head that scores rollouts, and its optimiser."""

    def __init__(
        self, network: DecoderNetwork, *, seed: int, learning_rate: float = 1e-4, batch: int = 32
    ) -> None:
        """Train `network` in place.

        Args:
            network: of the policy's vocabulary; never the policy's own.
            seed: of the head and of the order of rollouts.
            learning_rate: of all its weights.
            batch: rollouts or pairs per update.
        """
        self.batch = batch
        self.model = Scalar(network, seed)
        self._optimiser = Optimiser(self.model, learning_rate, seed=seed)

    def learn_success(self, judged: Sequence[Judged]) -> float:
        """Run one update on a minibatch of rollouts; return its loss, a mean over turns."""
        batch = self._optimiser.minibatch(judged, self.batch)
        turns = [(reply, one.success) for one in batch for reply in one.replies]
        return self._optimiser.step(self._success_losses(turns))

    def learn_preferences(self, pairs: Sequence[tuple[Tokens, Tokens]]) -> float:
        """Run one update on a minibatch of (chosen, rejected); return its mean loss."""
        batch = self._optimiser.minibatch(pairs, self.batch)
        return self._optimiser.step(self._preference_losses(batch))

    def scores(self, rollouts: Sequence[Tokens]) -> list[float]:
        """Return the number at the end of each rollout: a logit of success, or a score."""
        return self.model.read(rollouts)

    def state(self) -> Parts:
        """Return everything that a resumed run needs."""
        return self._optimiser.state()

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)

    def _success_losses(self, turns: Sequence[tuple[Tokens, float]]) -> Iterator[Tensor]:
        for part in parts(turns, AT_ONCE):
            logits = self.model([tokens for tokens, _ in part])
            success = torch.tensor([s for _, s in part], dtype=logits.dtype, device=logits.device)
            yield success_loss(logits, success).sum() / len(turns)

    def _preference_losses(self, batch: Sequence[tuple[Tokens, Tokens]]) -> Iterator[Tensor]:
        for part in parts(batch, AT_ONCE):
            chosen = self.model([better for better, _ in part])
            rejected = self.model([worse for _, worse in part])
            yield preference_loss(chosen, rejected).sum() / len(batch)
