"""AgentRM: a model of a state's value, and the two rules that choose by it.

Search with a scorer needs no training of the policy: best-of-N scores whole attempts by
their last state, step-level beam search keeps the best states after each step. Ties are
broken by order, so equal scores give equal choices.

Source: Xia et al. 2025, the release's pipeline (explicit reward model); formulas from memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.encoder import AT_ONCE, Scalar, parts
from palaestra.learning.critics.optimiser import Optimiser
from palaestra.learning.critics.step_q import Tree, node_values
from palaestra.models.local.network import DecoderNetwork


def value_targets(tree: Tree) -> list[tuple[int, float]]:
    """Return the visited nodes of a search tree, each with the mean return through it.

    Source: AgentRM (formula from memory).

    Raises:
        InputError: the tree is not in order (see `node_values`).
    """
    return [(i, node.value) for i, node in enumerate(node_values(tree)) if node.visits]


def node_value_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of each state's predicted value: [N], [N] -> [N].

    Source: AgentRM (formula from memory).
    """
    return (predictions - targets).square()


def best_of(scores: Sequence[float]) -> int:
    """Return which of N attempts to keep: the first with the highest score of its final state.

    Source: AgentRM release (N = 5 there).

    Raises:
        InputError: no score, or one that is not a number.
    """
    _check(scores)
    return scores.index(max(scores))


def beam(scores: Sequence[Sequence[float]], width: int) -> list[tuple[int, int]]:
    """Return the continuations that a step-level beam search keeps: the `width` highest scores.

    Source: AgentRM (abstract). Each state of the beam is continued several times.

    Args:
        scores: one list per state of the beam, one score per continuation of that state.
        width: of the beam.

    Returns:
        (state, continuation), highest score first, equal scores in the order given; all of
        them if there are fewer than `width`.

    Raises:
        InputError: no score, one that is not a number, or a width below 1.
    """
    found = {(i, j): score for i, of in enumerate(scores) for j, score in enumerate(of)}
    _check(list(found.values()))
    if width < 1:
        raise InputError(f"A beam of width {width} keeps nothing; use 1 or more.")
    return sorted(found, key=lambda index: (-found[index], index))[:width]


def _check(scores: Sequence[float]) -> None:
    if not scores or any(math.isnan(score) for score in scores):
        raise InputError("The scores are empty or hold a NaN; give at least one, and no NaN.")


class ValueModel:
    """A network with a head that predicts the value of the state at a sequence's end."""

    def __init__(
        self, network: DecoderNetwork, *, seed: int, learning_rate: float = 1e-5, batch: int = 32
    ) -> None:
        """Train `network` in place.

        Args:
            seed: of the head and of the order of the states.
        """
        self.batch = batch
        self.model = Scalar(network, seed)
        self._optimiser = Optimiser(self.model, learning_rate, seed=seed)

    def learn(
        self, states: Sequence[Sequence[int]], targets: Sequence[float], updates: int
    ) -> list[float]:
        """Run `updates` updates on minibatches of tokenised states; return the mean loss of each.

        Raises:
            ValueError: another number of targets than of states.
        """
        data = list(zip(states, targets, strict=True))
        losses = []
        for _ in range(updates):
            batch = self._optimiser.minibatch(data, self.batch)
            losses.append(self._optimiser.step(self._losses(batch)))
        return losses

    def scores(self, states: Sequence[Sequence[int]]) -> list[float]:
        """Return the value of each state, in units of return."""
        return self.model.read(states)

    def state(self) -> Parts:
        """Return everything that a resumed run needs."""
        return self._optimiser.state()

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)

    def _losses(self, batch: Sequence[tuple[Sequence[int], float]]) -> Iterator[Tensor]:
        for part in parts(batch, AT_ONCE):
            found = self.model([state for state, _ in part])
            targets = torch.tensor([target for _, target in part], device=found.device)
            yield node_value_loss(found, targets).sum() / len(batch)
