"""The result of a credit rule, and the operators that rules are made of.

A rule is a pure function from a batch of trajectories to one advantage per sampled
token. It must not depend on the order of the batch, and a trajectory's advantages
must not depend on how it is split into training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.data.trajectory import Trajectory

WHITEN_EPS = 1e-8  # added to the variance, in squared units of reward


@dataclass(frozen=True, slots=True)
class Credit:
    """The result of a rule; lists follow the batch, tensors are fp64."""

    advantages: list[Tensor]  # [T_i]: one per sampled token, in the order of sampling
    returns: list[Tensor] | None = None  # [T_i]: the critic's targets, NaN where it has none
    state: Mapping[str, float] = field(default_factory=dict)  # of rules with a state


class CreditRule(Protocol):
    """A registered function of kind `credit`."""

    def __call__(self, batch: Sequence[Trajectory]) -> Credit: ...


def per_token(trajectory: Trajectory, per_turn: Sequence[float] | Tensor) -> Tensor:
    """Expand one number per turn to one per sampled token: [K] -> [T]."""
    values = torch.as_tensor(per_turn, dtype=torch.float64)
    counts = torch.tensor([turn.tokens for turn in trajectory.turns])
    return values.repeat_interleave(counts)


def turn_starts(trajectory: Trajectory) -> Tensor:
    """Return the index of each turn's first token, [K]."""
    counts = torch.tensor([turn.tokens for turn in trajectory.turns])
    return counts.cumsum(0) - counts


def token_rewards(trajectory: Trajectory) -> list[float]:
    """Return each turn's reward at its last token, else zero: [T]; they sum to `total`."""
    found: list[float] = []
    for turn, reward in zip(trajectory.turns, trajectory.rewards, strict=True):
        found += [0.0] * (turn.tokens - 1) + [reward]
    return found


def broadcast(batch: Sequence[Trajectory], values: Sequence[float] | Tensor) -> Credit:
    """Expand one number per trajectory to all its tokens."""
    numbers = torch.as_tensor(values, dtype=torch.float64)
    return Credit([numbers[i].expand(t.tokens).clone() for i, t in enumerate(batch)])


def groups(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of equal keys, in the order of first appearance."""
    found: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return list(found.values())


def within(
    values: Sequence[float] | Tensor,
    keys: Sequence[Hashable],
    reduce: Callable[[Tensor], Tensor],
) -> Tensor:
    """Apply `reduce` ([n] -> [n]) to the values of each key separately: [N] -> [N]."""
    numbers = torch.as_tensor(values, dtype=torch.float64)
    result = torch.empty_like(numbers)
    for members in groups(keys):
        result[members] = reduce(numbers[members])
    return result


def centred(values: Tensor) -> Tensor:
    """Subtract the mean; exactly zero where all are equal (a float mean may be off an ulp)."""
    if bool((values == values[0]).all()):
        return torch.zeros_like(values)
    return values - values.mean()


def normalised(values: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """Standardise: `(x - mean) / (std + eps)`; zeros for one value."""
    difference = centred(values)
    if len(values) <= ddof:
        return difference
    return difference / (values.std(correction=ddof) + eps)


def whitened(values: Sequence[Tensor]) -> list[Tensor]:
    """Whiten over all entries: `(x - mean) / sqrt(var1 + 1e-8)`, as in verl.

    Zeros where all are equal, or where there is only one.
    """
    if not values:
        return []
    flat = torch.cat(list(values))
    result = centred(flat)
    if len(flat) > 1:
        result = result * torch.rsqrt(flat.var(correction=1) + WHITEN_EPS)
    return list(result.split([len(part) for part in values]))


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return the returns-to-go `G_k = r_k + gamma * G_{k+1}`."""
    running, found = 0.0, []
    for reward in reversed(rewards):
        running = reward + gamma * running
        found.append(running)
    return found[::-1]


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the variance of the returns that the critic explains.

    `1 - var(returns - values) / var(returns)`; a monitor of critic pretraining.

    Args:
        values: the critic's, [N].
        returns: its targets, [N]; entries without a target (NaN) are left out.

    Returns:
        At most 1, and negative for a critic that is worse than a constant; 0 where the
        returns do not vary, as there is nothing to explain.
    """
    trained = ~returns.isnan()
    found, wanted = values[trained].double(), returns[trained].double()
    if not len(wanted):
        return 0.0
    spread = float(centred(wanted).square().mean())
    if spread == 0.0:
        return 0.0
    return 1.0 - float(centred(wanted - found).square().mean()) / spread


def check_groups(batch: Sequence[Trajectory], rule: str, least: int = 2) -> None:
    """Raise GroupTooSmall if some group has fewer than `least` trajectories."""
    for members in groups([t.group for t in batch]):
        if len(members) < least:
            raise GroupTooSmall(
                f"{rule} needs groups of at least {least} rollouts of the same task, but "
                f"'{batch[members[0]].group}' has {len(members)}; set rl.group to 2 or more."
            )


def check_choice(rule: str, option: str, value: str, allowed: Collection[str]) -> None:
    """Raise InputError if the option's value is not allowed."""
    if value not in allowed:
        raise InputError(
            f"{rule} does not know {option} = '{value}'; choose one of: {', '.join(allowed)}."
        )
