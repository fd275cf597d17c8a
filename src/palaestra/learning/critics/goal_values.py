"""Goal-conditioned values of recorded states, estimated from the recorded transitions alone.

Sources: the critic of WGCSL (Yang et al. 2022) and GOAT (Yang et al. 2023): the value of a state
for a goal is what the recorded behaviour earns, where each action that leads to a state that
achieves the goal earns 1, and the goal is kept from then on; GOAT learns an ensemble, and takes the
deviation among its members for the uncertainty. Theirs are networks; this one is a table over
the states that occur in the record, which is exact where they recur. With `expectile` above
1/2, the table leans towards the best of the recorded actions (Kostrikov et al. 2022, IQL).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

SWEEPS, CLOSE = 2000, 1e-6  # most sweeps over all states; a change that ends them
NEWTON, EQUAL = 100, 1e-12  # most steps towards an expectile; a change that ends them


class Move(NamedTuple):
    """One recorded transition."""

    state: str
    then: str
    achieved: str | None  # the goal that `then` achieves, if any


@dataclass(frozen=True, slots=True)
class GoalValues:
    """The values of S states for G goals, by M members of an ensemble."""

    states: Mapping[str, int]
    goals: Mapping[str, int]
    values: Tensor  # [M, S, G], in [0, 1 / (1 - discount)]
    ahead: Tensor  # [M, S, G]: what an action earns that leads to a state

    def advantage(self, move: Move, goal: str) -> float:
        """Return how much more a move earns than its state is worth: the mean over members."""
        g = self.goals[goal]
        found = (
            self.ahead[:, self.states[move.then], g] - self.values[:, self.states[move.state], g]
        )
        return float(found.mean())

    def deviation(self, state: str, goal: str) -> float:
        """Return the standard deviation (over n) of a state's value among the members."""
        found = self.values[:, self.states[state], self.goals[goal]]
        return float(found.std(unbiased=False))


def fit_goal_values(
    episodes: Sequence[Sequence[Move]],
    *,
    discount: float,
    expectile: float = 0.5,
    members: int = 1,
    seed: int = 0,
) -> GoalValues:
    """Estimate values from recorded episodes, until they no longer change.

    Args:
        episodes: the transitions of each; some of them achieve a goal.
        discount: in [0, 1).
        expectile: of what the recorded actions of a state earn, in (0, 1); 0.5 is the mean.
        members: of the ensemble, each fitted to as many episodes, sampled with replacement; a
            single one is fitted to all of them.
        seed: of the sampling.
    """
    moves = [move for episode in episodes for move in episode]
    states = _numbered(name for move in moves for name in (move.state, move.then))
    goals = _numbered(move.achieved for move in moves if move.achieved is not None)
    arcs = list(dict.fromkeys((states[m.state], states[m.then]) for m in moves))
    number = {arc: n for n, arc in enumerate(arcs)}
    counts = torch.zeros(members, len(arcs), 1, dtype=torch.float64)
    rng = random.Random(seed)
    for member in range(members):
        sampled = episodes if members == 1 else rng.choices(episodes, k=len(episodes))
        seen = Counter(number[states[m.state], states[m.then]] for one in sampled for m in one)
        for arc, count in seen.items():
            counts[member, arc] = count
    achieved = torch.zeros(len(states), len(goals), dtype=torch.bool)
    for move in moves:
        if move.achieved is not None:
            achieved[states[move.then], goals[move.achieved]] = True
    start, end = torch.tensor(arcs, dtype=torch.long).reshape(-1, 2).T
    values = torch.zeros(members, len(states), len(goals), dtype=torch.float64)
    ahead = _ahead(values, achieved, discount)
    for _ in range(SWEEPS):
        found = _expectiles(ahead[:, end], counts, start, values, expectile)
        change = _largest_change(found, values)
        values, ahead = found, _ahead(found, achieved, discount)
        if change < CLOSE:
            break
    return GoalValues(states, goals, values, ahead)


def _expectiles(
    gains: Tensor, counts: Tensor, start: Tensor, values: Tensor, expectile: float
) -> Tensor:
    """Return the expectiles [M, S, G] of the gains [M, A, G] of the moves from each state.

    Newton's method on a function that is piecewise linear, and convex or concave: it ends exactly.
    The expectile of given gains moves no further than they do, so that sweeps contract; weights of
    an earlier sweep could swing for ever.

    Args:
        gains: of each arc.
        counts: of each arc, [M, A, 1].
        start: the state that each arc leaves, [A].
        values: from which to begin.
        expectile: in (0, 1).
    """
    for _ in range(NEWTON):
        weights = counts * torch.where(gains > values[:, start], expectile, 1 - expectile)
        total = torch.zeros_like(values).index_add_(1, start, weights * gains)
        norm = torch.zeros_like(values).index_add_(1, start, weights)
        found = torch.where(norm > 0, total / norm.clamp(min=1e-300), 0.0)
        if _largest_change(found, values) < EQUAL:
            break
        values = found
    return found


def _largest_change(found: Tensor, before: Tensor) -> float:
    return float((found - before).abs().max()) if found.numel() else 0.0


def _ahead(values: Tensor, achieved: Tensor, discount: float) -> Tensor:
    """Return r + discount * V of each state to be entered: [M, S, G]."""
    return torch.where(achieved, 1 / (1 - discount), discount * values)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: n for n, name in enumerate(dict.fromkeys(names))}
