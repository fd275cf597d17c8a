"""A critic with a network of its own: nothing that it learns touches the policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from palaestra.learning.critics.value import (
    ValueHead,
    ValueUpdate,
    end_values,
    fit,
    row_values,
    state_of,
)
from palaestra.learning.masters import MasterOptimiser, Optimisation, Parts
from palaestra.learning.memory import MemoryBudget
from palaestra.learning.packing import Micro, Trained
from palaestra.learning.selection import everything
from palaestra.models.network import DecoderNetwork


class SeparateCritic:
    """A transformer that reads the policy's tokens and says how much is still to be gained."""

    def __init__(self, network: DecoderNetwork, optimisation: Optimisation) -> None:
        """Begin from a copy of `network`: the policy's, or any other of the same vocabulary."""
        self.network = copy.deepcopy(network)
        self.network.head = None  # it predicts no tokens
        self.network.config = replace(network.config, tie_word_embeddings=True)
        self.head = ValueHead(self.network)
        parameters = {**everything(self.network).parameters, **self.head.named()}
        self.budget = MemoryBudget(self.network, parameters, memory=optimisation.memory)
        self._optimiser = MasterOptimiser(parameters, optimisation)

    def values(self, rows: Sequence[Trained]) -> list[list[float]]:
        """The value before each trained token of each row."""
        return row_values(self.network, self.head, rows, self.budget.tokens)

    def end_values(self, rows: Sequence[Trained]) -> list[float]:
        """The value after each row's last token, to bootstrap a rollout that was cut off there."""
        return end_values(self.network, self.head, rows, self.budget.tokens)

    def update_values(
        self,
        rows: Sequence[Trained],
        *,
        clip: float | None = None,
        learning_rate: float | None = None,
    ) -> ValueUpdate:
        """One optimiser step on the rows' value targets.

        Args:
            rows: those without targets are passed over.
            clip: see `value_loss`; then rows need `value_old`.
            learning_rate: from now on; None leaves it as it is.

        Raises:
            InputError: there are no targets, or no old values where they are needed; or a row
                is too long for the memory that there is.
        """

        def values(micro: Micro) -> Tensor:
            hidden = micro.hidden(recompute=self.budget.recomputes(len(micro.tokens)))
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
        """Everything a resumed run needs: master weights, the head's too, and the moments."""
        return self._optimiser.state()

    def restore(self, parts: Parts) -> None:
        """Put back what `state` gave."""
        self._optimiser.restore(parts)
