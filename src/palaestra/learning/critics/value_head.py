"""A critic on states: a small head on a transformer's last hidden state, and its regression.

The value of a token is that of the state before it, read where the token is predicted
from. Observations have no values: the policy does not decide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation, Parts
from palaestra.learning.compute.memory_budget import MemoryBudget
from palaestra.learning.compute.packing import Micro, Trained, micro_batches, per_row
from palaestra.learning.credit.rule import explained_variance
from palaestra.models.local.network import DecoderNetwork

PREFIX = "value_head."  # of the head's names in checkpoints


class ValueHead(nn.Module):
    """Hidden state to value, linear; in at least fp32, and zero until trained."""

    def __init__(self, network: DecoderNetwork) -> None:
        super().__init__()
        self.linear = nn.Linear(
            network.config.hidden_size, 1, device=network.device, dtype=network.wide_dtype
        )
        self.reset()

    def reset(self) -> None:
        """Reset the head to zero."""
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, state: Tensor) -> Tensor:
        """Map states [M, width] to values [M]."""
        return self.linear(state.to(self.linear.weight.dtype)).squeeze(-1)

    def named(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in checkpoints."""
        return {PREFIX + name: parameter for name, parameter in self.named_parameters()}


def state_of(network: DecoderNetwork, hidden: Tensor) -> Tensor:
    """Return the head's input: hidden states [M, width] of the last block, normed."""
    return network.normed(hidden)


def value_loss(
    values: Tensor, targets: Tensor, old: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Return `0.5 * max((v - G)^2, (clip(v, old - c, old + c) - G)^2)` per token.

    Source: Schulman et al. 2017's code; verl `compute_value_loss`. The clip keeps values from
    moving further than c from what they were when the targets were made; published values of
    c are 0.2 to 0.5.

    Args:
        values: v, shape [M].
        targets: G, shape [M].
        old: the values that belong to the targets, shape [M]; needed with `clip`.
        clip: c, in units of return; None does not clip.

    Returns:
        shape [M].

    Raises:
        InputError: a clip without old values.
    """
    error = (values - targets).square()
    if clip is not None:
        if old is None:
            raise InputError("The values are to be clipped, but `old` is None; give the old ones.")
        near = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (near - targets).square())
    return 0.5 * error


class Regression:
    """The value loss of one batch: each token with a target weighs the same."""

    def __init__(self, rows: Sequence[Trained], clip: float | None = None) -> None:
        """Raise InputError if values are to be clipped but a row with targets has no old ones."""
        self.clip = clip
        self.count = sum(not math.isnan(t) for row in rows for t in targets_of(row))
        if clip is not None and any(has_targets(r) and not r.value_old for r in rows):
            raise InputError(
                "The critic clips its values, but a row with value_target has no value_old; give "
                "the values that the targets were made with, or set clip to None."
            )
        self._losses: list[Tensor] = []
        self._values: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, values: Tensor, micro: Micro) -> Tensor:
        """Return the loss of a micro-batch, a scalar; they add up to the batch's mean."""
        has = ~micro.value_target.isnan()
        chosen, targets = values[has], micro.value_target[has]
        loss = value_loss(chosen, targets, micro.value_old[has], self.clip)
        total = loss.sum() / max(self.count, 1)
        self._losses.append(total.detach())
        self._values.append(chosen.detach())
        self._targets.append(targets)
        return total

    @property
    def loss(self) -> float:
        """Return the mean over all tokens with a target so far."""
        return float(sum(self._losses))

    @property
    def explained_variance(self) -> float:
        """Return the share of the targets' variance that the values before the step explain."""
        return explained_variance(torch.cat(self._values), torch.cat(self._targets))


def targets_of(row: Trained) -> list[float]:
    """Return the critic's targets of the row's trained tokens; NaN, or none at all, if missing."""
    return list(compress(row.value_target or (), row.mask))


def has_targets(row: Trained) -> bool:
    """Return whether the row has a target for the critic."""
    return not all(map(math.isnan, targets_of(row)))


@dataclass(frozen=True, slots=True)
class ValueUpdate:
    """The result of one optimiser step of a critic; figures of the values are those before it."""

    value_loss: float  # mean over the batch's targets
    explained_variance: float
    gradient_norm: float
    tokens: int  # with a target
    processed: int  # all tokens run through the network


def fit(
    network: DecoderNetwork,
    values: Callable[[Micro], Tensor],
    optimiser: MasterOptimiser,
    rows: Sequence[Trained],
    budget: MemoryBudget,
    *,
    clip: float | None = None,
    learning_rate: float | None = None,
) -> ValueUpdate:
    """Run one optimiser step of value regression on the rows that have targets.

    Raises:
        InputError: no row has a target, or one is too long for the available memory.
    """
    regression = Regression(rows, clip)
    if not regression.count:
        raise InputError("No row has a value_target, so a critic cannot learn; give at least one.")
    processed = 0
    groups = micro_batches([row for row in rows if has_targets(row)], budget.tokens, network)
    micros = [Micro(group, network) for group in groups]
    for micro in micros:
        budget.check(micro.size)
    for micro in micros:
        regression.add(values(micro), micro).backward()
        processed += micro.size
    norm = optimiser.step(learning_rate)
    return ValueUpdate(
        regression.loss, regression.explained_variance, norm, regression.count, processed
    )


def row_values(
    network: DecoderNetwork, head: ValueHead, rows: Sequence[Trained], most_tokens: int
) -> list[list[float]]:
    """Return the value before each trained token of each row."""

    def values(groups: list[list[Trained]]) -> Iterator[Tensor]:
        for group in groups:
            micro = Micro(group, network)
            yield head(state_of(network, micro.hidden()[micro.predictors]))

    with torch.no_grad():
        return per_row(rows, micro_batches(rows, most_tokens, network), values)


@torch.no_grad()
def end_values(
    network: DecoderNetwork, head: ValueHead, rows: Sequence[Trained], most_tokens: int
) -> list[float]:
    """Return the value after each row's last token, to bootstrap a rollout cut off there."""
    found: dict[int, float] = {}
    for group in micro_batches(rows, most_tokens, network):
        micro = Micro(group, network)
        values = head(state_of(network, micro.hidden()[micro.ends]))
        found.update(zip(map(id, group), values.tolist(), strict=True))
    return [found[id(row)] for row in rows]


@dataclass(frozen=True, slots=True)
class Critic:
    """Settings of a learner's own critic, a head on the policy's trunk."""

    learning_rate: float  # of the head
    coefficient: float = 1.0  # of the value loss in the loss of an update
    clip: float | None = None  # see `value_loss`
    shared: bool = True  # whether the value loss trains the trunk too


class AttachedCritic:
    """A value head on the policy's trunk, with its optimiser."""

    def __init__(self, network: DecoderNetwork, critic: Critic, optimisation: Optimisation) -> None:
        self.network, self.settings = network, critic
        self.head = ValueHead(network)
        self.optimiser = MasterOptimiser(
            self.head.named(), replace(optimisation, learning_rate=critic.learning_rate)
        )

    def values(self, hidden: Tensor) -> Tensor:
        """Return values [M] of hidden states [M, width]; the trunk gets a gradient if shared."""
        shared = self.settings.shared and torch.is_grad_enabled()
        with torch.set_grad_enabled(shared):
            state = state_of(self.network, hidden)
        return self.head(state)

    def regression(self, rows: Sequence[Trained]) -> Regression | None:
        """Return the value loss of a batch; None if it has no targets."""
        regression = Regression(rows, self.settings.clip)
        return regression if regression.count else None

    def update(self, rows: Sequence[Trained], budget: MemoryBudget) -> ValueUpdate:
        """Run one unclipped optimiser step of the head alone; the policy does not change."""

        def values(micro: Micro) -> Tensor:
            with torch.no_grad():
                state = state_of(self.network, micro.hidden()[micro.predictors])
            return self.head(state)

        return fit(self.network, values, self.optimiser, rows, budget)

    def restore(self, parts: Parts) -> None:
        """Restore the head of a checkpoint; reset it if the checkpoint has none."""
        if self.optimiser.master_weights.keys() <= parts["weights"].keys():
            self.optimiser.restore(parts)
        else:
            self.head.reset()
            self.optimiser.forget()
