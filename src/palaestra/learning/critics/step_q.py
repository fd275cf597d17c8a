"""Step-level Q: search trees show which action was better, and a small model learns it.

A tree of rollouts gives each action the mean return of the rollouts through it. At each state
of the best path the best and the worst action form a pair. A model is trained on the pairs
by DPO; its log-ratio to its own start ranks the actions that a frozen policy proposes.

Source: Zhai et al. 2024 (abstract and digests; the constants are proposals).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.encoder import AT_ONCE, hidden_at, parts
from palaestra.learning.critics.optimiser import Optimiser, weights_of
from palaestra.learning.losses.preference import implicit_reward, step_dpo
from palaestra.models.local.network import DecoderNetwork


@dataclass(frozen=True, slots=True)
class Node:
    """An action and the state it led to; the root is the first state and has no parent."""

    parent: int | None  # its number in the tree, less than this one's own
    returns: tuple[float, ...] = ()  # of the rollouts that ended here


Tree = Sequence[Node]
"""Parents before children; the root first."""


@dataclass(frozen=True, slots=True)
class NodeValue:
    """Visits and value of a node, from the rollouts through it."""

    visits: int
    value: float  # their mean return; NaN without a visit


@dataclass(frozen=True, slots=True)
class Pair:
    """Two actions in one state, by their numbers in the tree."""

    state: int
    chosen: int
    rejected: int
    gap: float  # of their values


def node_values(tree: Tree) -> list[NodeValue]:
    """Return the mean return of all rollouts through each node, backed up from their ends.

    Source: Zhai et al. 2024 (digest); a rollout counts once, so a branch that was visited
    more often weighs more.

    Raises:
        InputError: no root, a second one, or a node before its parent.
    """
    if not tree or tree[0].parent is not None:
        raise InputError("The tree has no root; begin it with a node without a parent.")
    counts = [len(node.returns) for node in tree]
    sums = [math.fsum(node.returns) for node in tree]
    for number in range(len(tree) - 1, 0, -1):
        parent = tree[number].parent
        if parent is None or not 0 <= parent < number:
            raise InputError(
                f"Node {number} of the tree has the parent {parent}; list each node after its "
                "parent, and one root first."
            )
        counts[parent] += counts[number]
        sums[parent] += sums[number]
    return [NodeValue(n, s / n if n else math.nan) for n, s in zip(counts, sums, strict=True)]


def children_of(tree: Tree) -> list[list[int]]:
    """Return the numbers of each node's children, ascending."""
    found: list[list[int]] = [[] for _ in tree]
    for number, node in enumerate(tree):
        if node.parent is not None:
            found[node.parent].append(number)
    return found


def select(children: Sequence[NodeValue], parent_visits: int, *, c: float = math.sqrt(2)) -> int:
    """Return the child that a search tries next: the highest `Q + c * sqrt(ln N_p / N)`.

    Source: UCT (Kocsis and Szepesvari 2006). An unvisited child comes first; ties: the first.

    Raises:
        InputError: no children.
    """
    if not children:
        raise InputError("There is no child to select; expand the node first.")
    bounds = [
        child.value + c * math.sqrt(math.log(max(parent_visits, 1)) / child.visits)
        if child.visits
        else math.inf
        for child in children
    ]
    return bounds.index(max(bounds))


def preference_pairs(tree: Tree, *, margin: float = 0.0) -> list[Pair]:
    """Return the best and the worst action at each state of the best path.

    Source: Zhai et al. 2024 (digest); the margin is ours. The path follows the highest value
    from the root; of equal values the first node counts; nodes without a visit never do.

    Args:
        tree: see `Tree`.
        margin: pairs whose values differ by no more than this are left out.

    Raises:
        InputError: as `node_values`.
    """
    values, children = node_values(tree), children_of(tree)
    found: list[Pair] = []
    state = 0
    while known := [child for child in children[state] if values[child].visits]:
        best = max(known, key=lambda child: values[child].value)
        worst = min(known, key=lambda child: values[child].value)
        gap = values[best].value - values[worst].value
        if gap > margin:
            found.append(Pair(state, best, worst, gap))
        state = best
    return found


def choose(lp: Tensor, ref: Tensor, *, beta: float = 0.1) -> int:
    """Return the action to take: the first with the highest implied Q (`implicit_reward`).

    Source: Zhai et al. 2024 (formula from memory). `lp` and `ref` are sums over an action's
    tokens, [N], under the trained model and the one that training began from.
    """
    scores: list[float] = implicit_reward(lp, ref, beta=beta).tolist()
    return scores.index(max(scores))


@dataclass(frozen=True, slots=True)
class Preference:
    """A pair in tokens."""

    history: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


Continuations = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Histories, each with the action that followed, in tokens."""


class StepQ:
    """A model trained on pairs, and the frozen copy of its start."""

    def __init__(
        self,
        network: DecoderNetwork,
        *,
        seed: int,
        beta: float = 0.1,
        learning_rate: float = 1e-5,
        batch: int = 32,
    ) -> None:
        """Train `network` in place; `seed` orders the pairs."""
        self.network, self.beta, self.batch = network, beta, batch
        self.reference = copy.deepcopy(network).requires_grad_(False)
        self._optimiser = Optimiser(network, learning_rate, seed=seed)

    def learn(self, preferences: Sequence[Preference], updates: int) -> list[float]:
        """Run `updates` updates on minibatches of pairs; return the mean loss of each."""
        losses = []
        for _ in range(updates):
            batch = self._optimiser.minibatch(preferences, self.batch)
            losses.append(self._optimiser.step(self._losses(batch)))
        return losses

    @torch.no_grad()
    def scores(self, history: Sequence[int], actions: Sequence[Sequence[int]]) -> list[float]:
        """Return the score of each possible next action."""
        lp, ref = self._likelihoods([(history, action) for action in actions])
        return implicit_reward(lp, ref, beta=self.beta).tolist()

    def state(self) -> Parts:
        """Return everything that a resumed run needs, the reference included."""
        return {**self._optimiser.state(), "reference": weights_of(self.reference)}

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)
        self.reference.load_state_dict(parts["reference"])

    def _losses(self, batch: Sequence[Preference]) -> Iterator[Tensor]:
        for part in parts(batch, AT_ONCE):
            continuations = [(p.history, p.chosen) for p in part] + [
                (p.history, p.rejected) for p in part
            ]
            lp, ref = self._likelihoods(continuations)
            losses = step_dpo(*lp.chunk(2), *ref.chunk(2), beta=self.beta)
            yield losses.sum() / len(batch)

    def _likelihoods(self, continuations: Continuations) -> tuple[Tensor, Tensor]:
        """Return both log-likelihoods, [N] each; the reference's without gradient."""
        with torch.no_grad():
            ref = log_likelihoods(self.reference, continuations)
        return log_likelihoods(self.network, continuations), ref


def log_likelihoods(network: DecoderNetwork, continuations: Continuations) -> Tensor:
    """Return the summed log-probability of each (history, action): [N]."""
    rows = [(*history, *action) for history, action in continuations]
    before = [range(len(h) - 1, len(h) + len(a) - 1) for h, a in continuations]
    logits = network.logits(hidden_at(network, rows, before)).to(network.wide_dtype)
    tokens = torch.tensor(
        [token for _, action in continuations for token in action], device=logits.device
    )
    owner = torch.tensor(
        [i for i, (_, a) in enumerate(continuations) for _ in a], device=logits.device
    )
    lp = logits.log_softmax(dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
    return lp.new_zeros(len(continuations)).index_add(0, owner, lp)
