"""An inverse dynamics model: reads a state and the next one, and names the action between them.

Source: SS-ORL (Zheng et al. 2023), whose model labels trajectories without actions, after it was
fitted to those that have some. Theirs reads a window of states and predicts a vector; this one is
a copy of the policy's network, reads two observations as text, and names the likeliest of the
actions that it was shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.critics.encoder import AT_ONCE, hidden_at, parts
from palaestra.learning.critics.optimiser import Optimiser
from palaestra.models.local.network import DecoderNetwork

Tokens = Sequence[int]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Two states and the action between them, in tokens."""

    states: Tokens  # a prompt
    action: Tokens  # a reply; not empty


class InverseDynamics:
    """A network that names actions, and its optimiser."""

    def __init__(
        self, network: DecoderNetwork, *, seed: int, learning_rate: float = 1e-3, batch: int = 64
    ) -> None:
        """Train `network` in place.

        Args:
            network: of the policy's vocabulary; never the policy's own.
            seed: of the order of the transitions.
            learning_rate: of all its weights.
            batch: transitions per update.
        """
        self.network, self.batch = network, batch
        self.processed = 0  # tokens that updates have read
        self._optimiser = Optimiser(network, learning_rate, seed=seed)

    def learn(self, labelled: Sequence[Labelled]) -> float:
        """Run one update on a minibatch; return its loss, in nats per token of the actions."""
        batch = self._optimiser.minibatch(labelled, self.batch)
        self.processed += sum(len(one.states) + len(one.action) for one in batch)
        return self._optimiser.step(self._losses(batch))

    @torch.no_grad()
    def name(self, states: Sequence[Tokens], actions: Sequence[Tokens]) -> list[int]:
        """Return which action is the likeliest between two states; of equals, the first.

        Args:
            states: prompts, each of two states.
            actions: replies to choose from; at least one.

        Returns:
            the number of an action, per prompt.
        """
        every = [Labelled(prompt, action) for prompt in states for action in actions]
        scores = [
            float(one.sum())
            for part in parts(every, AT_ONCE)
            for one in self._logprobs(part).split([len(one.action) for one in part])
        ]
        rows = parts(scores, len(actions))
        return [max(range(len(row)), key=row.__getitem__) for row in rows]

    def _losses(self, batch: Sequence[Labelled]) -> Iterator[Tensor]:
        count = sum(len(one.action) for one in batch)
        for part in parts(batch, AT_ONCE):
            yield -self._logprobs(part).sum() / count

    def _logprobs(self, part: Sequence[Labelled]) -> Tensor:
        """Return the log-probability of each token of the actions, action after action."""
        wholes = [[*one.states, *one.action] for one in part]
        before = [
            range(len(one.states) - 1, len(w) - 1) for one, w in zip(part, wholes, strict=True)
        ]
        targets = [token for one in part for token in one.action]
        lp, _ = token_logprobs(
            self.network,
            hidden_at(self.network, wholes, before),
            torch.tensor(targets, device=self.network.device),
            1.0,
            entropy_gradient=False,
        )
        return lp
