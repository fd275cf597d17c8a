"""Random batches in two forms: turns, as palaestra sees them, and padded rows, as the peers do.

Several groups, mixed; rollouts of one to four turns with observations between them, sometimes
after the last one too. What stands at observations and padding is noise that must not matter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.trained_tokens import TokenLoss, Tokens

SEEDS = range(20)


@dataclass(frozen=True, slots=True)
class Batch:
    """B rollouts, each one row of width T; M of all B * T tokens were sampled."""

    trajectories: list[Trajectory]
    rows: list[Row]
    mask: Tensor  # int64 [B, T]: 1 on sampled tokens
    turn: Tensor  # int64 [B, T]: number of the turn in the batch
    rewards: Tensor  # fp64 [B, T]: each turn's at its last token
    values: Tensor  # fp64 [B, T]: a critic's; of observations and padding too
    index: np.ndarray  # [B]: the group's name

    def flat(self, matrix: Tensor) -> Tensor:
        """The sampled tokens' entries: [B, T] -> [M]."""
        return matrix[self.mask.bool()]

    def weights(self, aggregation: Aggregation, length: int | None = None) -> Tensor:
        """The weight of each sampled token, fp64 [M]."""
        weights = token_weights(self.rows, aggregation, length=length)
        rows = zip(self.rows, weights, strict=True)
        return torch.tensor(
            [w for row, found in rows for w, on in zip(found, row.mask, strict=True) if on],
            dtype=torch.float64,
        )


def made(seed: int, *, groups: int = 3, members: tuple[int, int] = (2, 5)) -> Batch:
    """A batch sampled from the seed."""
    rng = random.Random(seed)
    sizes = [rng.randint(*members) for _ in range(groups)]
    keys = [Key("rl/1", group, member) for group in range(groups) for member in range(sizes[group])]
    rng.shuffle(keys)
    greedy = [rng.random() for _ in range(groups)]
    spans = [_spans(rng) for _ in keys]
    width = max(end for found in spans for _, end in found) + 1
    shape = (len(keys), width)
    mask, turn = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    rewards = torch.zeros(shape, dtype=torch.float64)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    trajectories, rows, turns = [], [], 0
    for i, (key, own) in enumerate(zip(keys, spans, strict=True)):
        earned = [rng.uniform(-1, 1) for _ in own]
        outcome = rng.uniform(0, 2)
        calls = [-1] * (own[-1][1] + 1)  # the row begins with one token of a prompt
        output = []
        for call, (start, end) in enumerate(own):
            mask[i, start:end] = 1
            turn[i, start:end] = turns
            rewards[i, end - 1] = earned[call]
            calls[start + 1 : end + 1] = [call] * (end - start)
            valued = tuple(values[i, start:end].tolist())
            output.append(Turn(end - start, earned[call], call, values=valued))
            turns += 1
        rewards[i, own[-1][1] - 1] += outcome
        trajectories.append(
            Trajectory(key, f"g{key.group}", tuple(output), outcome, greedy=greedy[key.group])
        )
        trained = [call >= 0 for call in calls]
        rows.append(Row(key, [7] * len(calls), trained, [0.0] * len(calls), calls))
    index = np.array([f"g{key.group}" for key in keys])
    return Batch(trajectories, rows, mask, turn, rewards, values, index)


def of_returns(returns: Sequence[float], *, group: int = 0) -> list[Trajectory]:
    """One group of rollouts of one token with these returns."""
    key = [Key("rl/1", group, member) for member in range(len(returns))]
    return [
        Trajectory(k, f"g{group}", (Turn(1),), value) for k, value in zip(key, returns, strict=True)
    ]


def _spans(rng: random.Random) -> list[tuple[int, int]]:
    """Where the turns of a row begin and end."""
    found, at = [], 0
    for _ in range(rng.randint(1, 4)):
        end = at + rng.randint(1, 5)
        found.append((at, end))
        at = end + rng.randint(1, 4)
    return found


@dataclass(frozen=True, slots=True)
class Policies:
    """Log-probabilities under four policies, and advantages: [B, T] each."""

    lp: Tensor  # with gradient
    lp_old: Tensor
    lp_beh: Tensor
    lp_ref: Tensor
    advantage: Tensor

    def tokens(self, batch: Batch) -> Tokens:
        """What our losses see of them."""
        rollout = torch.arange(len(batch.mask))[:, None].expand_as(batch.mask)
        return Tokens(
            lp=batch.flat(self.lp),
            lp_old=batch.flat(self.lp_old),
            advantage=batch.flat(self.advantage),
            turn=batch.flat(batch.turn),
            rollout=batch.flat(rollout),
            lp_beh=batch.flat(self.lp_beh),
            version=torch.zeros(int(batch.mask.sum()), dtype=torch.int64),
            lp_ref=batch.flat(self.lp_ref),
        )


def policies(
    batch: Batch, seed: int, *, spread: float = 0.5, dtype: torch.dtype = torch.float64
) -> Policies:
    """Policies that lie `spread` (in log-probability) apart; all advantages differ."""
    g = torch.Generator().manual_seed(1000 + seed)
    shape = batch.mask.shape
    old = -3 * torch.rand(shape, generator=g, dtype=torch.float64) - 0.5
    noise = spread * torch.randn(4, *shape, generator=g, dtype=torch.float64)
    every = [old + noise[0], old, old + noise[1], old + noise[2], 2 * noise[3] / spread]
    lp, *others = (x.to(dtype) for x in every)
    return Policies(lp.requires_grad_(), *others)


def per_row(numbers: Policies) -> Policies:
    """The same with one advantage per rollout."""
    first = numbers.advantage[:, :1]
    return replace(numbers, advantage=first.expand_as(numbers.advantage).clone())


def ours(
    loss: TokenLoss, batch: Batch, numbers: Policies, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The weighted sum of our loss, and its gradient by all log-probabilities [B, T]."""
    total = (loss(numbers.tokens(batch)) * weights.to(numbers.lp.dtype)).sum()
    return total.detach(), gradient(total, numbers)


def gradient(total: Tensor, numbers: Policies) -> Tensor:
    (found,) = torch.autograd.grad(total, numbers.lp, retain_graph=True)
    return found
