"""A head that predicts privileged numbers of the state: an auxiliary loss, for training alone.

A linear map of the policy's hidden state before a reply to what the environment knows of the state
then and the agent does not (`Spec.privileged`). Its squared error trains the policy's trunk too, so
that what the agent saw is kept there. The head is no part of the policy: neither prompts nor
sampling read it, and a saved policy is without it.

Source: after the SGC loss (Singh et al. 2022, "A General Purpose Supervisory Signal for Embodied
Agents"), with a regression on declared numbers in place of a contrast between scene graphs, so that
the loss is a sum over turns however they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation, Parts
from palaestra.learning.compute.packing import Micro, Trained
from palaestra.learning.critics.value_head import state_of
from palaestra.models.local.network import DecoderNetwork

PREFIX = "privileged_head."  # of the head's names in checkpoints


@dataclass(frozen=True, slots=True)
class PrivilegedLoss:
    """Settings of the auxiliary loss."""

    size: int  # privileged numbers of a state
    coefficient: float  # of the loss in the loss of an update, above 0
    learning_rate: float  # of the head


class Prediction:
    """The squared error of one batch: each turn weighs the same."""

    def __init__(self, rows: Sequence[Trained]) -> None:
        self.count = sum(len(row.privileged) for row in rows)
        self._sum = 0.0

    def add(self, predicted: Tensor, micro: Micro) -> Tensor:
        """Return the loss of a micro-batch, a scalar; they add up to the batch's mean.

        Args:
            predicted: of its turns with privileged numbers, [K, size].
            micro: holds these numbers.
        """
        error = (predicted - micro.privileged).square().mean(dim=-1)
        total = error.sum() / max(self.count, 1)
        self._sum += float(total.detach())
        return total

    @property
    def loss(self) -> float:
        """The mean squared error over turns and numbers so far."""
        return self._sum


class PrivilegedHead:
    """A head on the policy's trunk, zero until trained, with its optimiser."""

    def __init__(
        self, network: DecoderNetwork, settings: PrivilegedLoss, optimisation: Optimisation
    ) -> None:
        self.network, self.settings = network, settings
        self.linear = nn.Linear(
            network.config.hidden_size,
            settings.size,
            device=network.device,
            dtype=network.wide_dtype,
        )
        self._reset()
        named = {PREFIX + name: p for name, p in self.linear.named_parameters()}
        self.optimiser = MasterOptimiser(
            named, replace(optimisation, learning_rate=settings.learning_rate)
        )

    def predictions(self, hidden: Tensor) -> Tensor:
        """Return predictions [K, size] from hidden states [K, width], with their gradient."""
        return self.linear(state_of(self.network, hidden).to(self.linear.weight.dtype))

    def restore(self, parts: Parts) -> None:
        """Restore the head of a checkpoint; reset it if the checkpoint has none."""
        if self.optimiser.master_weights.keys() <= parts["weights"].keys():
            self.optimiser.restore(parts)
        else:
            self._reset()
            self.optimiser.forget()

    @torch.no_grad()
    def _reset(self) -> None:
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
