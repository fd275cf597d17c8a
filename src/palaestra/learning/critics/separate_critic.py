"""A critic with a network of its own: its training never touches the policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation, Parts
from palaestra.learning.compute.memory_budget import MemoryBudget
from palaestra.learning.compute.packing import Micro, Trained
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.critics.value_head import (
    ValueHead,
    ValueUpdate,
    end_values,
    fit,
    row_values,
    state_of,
)
from palaestra.models.local.network import DecoderNetwork


class SeparateCritic:
    """A transformer that reads the policy's tokens and predicts the return still to come."""

    def __init__(self, network: DecoderNetwork, optimisation: Optimisation) -> None:
        """Start from a copy of `network`: the policy's, or any other of the same vocabulary."""
        self.network = copy.deepcopy(network)
        self.network.head = None  # it predicts no tokens
        self.network.config = replace(network.config, tie_word_embeddings=True)
        self.head = ValueHead(self.network)
        parameters = {**everything(self.network).parameters, **self.head.named()}
        self.budget = MemoryBudget(self.network, parameters, memory=optimisation.memory)
        self._optimiser = MasterOptimiser(parameters, optimisation)

    def values(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Return the value before each trained token of each row."""
        return row_values(self.network, self.head, rows, self.budget.tokens)

    def end_values(self, rows: Sequence[Trained]) -> list[float]:
        """Return the value after each row's last token, to bootstrap a rollout cut off there."""
        return end_values(self.network, self.head, rows, self.budget.tokens)

    def update_values(
        self,
        rows: Sequence[Trained],
        *,
        clip: float | None = None,
        learning_rate: float | None = None,
    ) -> ValueUpdate:
        """Run one optimiser step on the rows' value targets.

        Args:
            rows: those without targets are ignored.
            clip: see `value_loss`; then rows need `value_old`.
            learning_rate: used from now on; None keeps the present one.

        Raises:
            InputError: there are no targets, or no old values where they are needed; or a row
                is too long for the available memory.
        """

        def values(micro: Micro) -> Tensor:
            hidden = micro.hidden(recompute=self.budget.recomputes(micro.size))
            return self.head(state_of(self.network, hidden[micro.predictors]))

        return fit(
            self.network,
            values,
            self._optimiser,
            rows,
            self.budget,
            clip=clip,
            learning_rate=learning_rate,
        )

    def state(self) -> Parts:
        """Return everything that a resumed run needs: master weights (with the head), moments."""
        return self._optimiser.state()

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)
