"""Passes: micro-batches through the network, one after the other, here or in another process.

All that a loss reads of the network are the figures of its trained tokens (`Outputs`); what it
gives back are the gradients with respect to these figures. So a pass can run anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from palaestra.learning.compute.packing import Micro
from palaestra.learning.losses.kl import Divergence


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pass computes."""

    gradient: bool = False  # whether a backward pass follows
    entropy: bool = False  # whether the loss depends on the entropies
    values: bool = False  # of the critic on the policy's trunk
    base: bool = False  # without adapters
    privileged: bool = False  # predictions of privileged numbers
    divergence: Divergence | None = None  # from the teacher; the loss then reads only this


@dataclass(frozen=True, slots=True)
class Outputs:
    """The figures of a micro-batch's M trained tokens, each [M]."""

    lp: Tensor  # log-probabilities
    entropy: Tensor  # nats
    values: Tensor | None = None  # if wanted
    privileged: Tensor | None = None  # if wanted, of K turns, [K, numbers]
    divergence: Tensor | None = None  # if wanted

    def parts(self) -> list[Tensor]:
        """Return the figures in a fixed order, without those that were not wanted."""
        every = (self.lp, self.entropy, self.values, self.privileged, self.divergence)
        return [part for part in every if part is not None]

    @classmethod
    def of(cls, parts: Iterable[Tensor], wanted: Wanted) -> Outputs:
        """Return the figures of their `parts`."""
        left = iter(parts)
        lp, entropy = next(left), next(left)
        values = next(left) if wanted.values else None
        privileged = next(left) if wanted.privileged else None
        divergence = next(left) if wanted.divergence else None
        return cls(lp, entropy, values, privileged, divergence)


class Pass(Protocol):
    """One micro-batch on its way through the network."""

    micro: Micro

    def outputs(self) -> Generator[None, None, Outputs]:
        """Return the figures; yields while they are computed elsewhere."""

    def backward(self, total: Tensor) -> None:
        """Add the gradient of a loss of these figures to that of the step."""


class OwnPass:
    """A pass in this process."""

    def __init__(self, micro: Micro, compute: Callable[[Micro], Outputs]) -> None:
        self.micro, self._compute = micro, compute
        self._outputs: Outputs | None = None

    def start(self) -> None:
        """Compute the figures now."""
        self._outputs = self._compute(self.micro)

    def outputs(self) -> Generator[None, None, Outputs]:
        """See `Pass`."""
        if self._outputs is None:
            self.start()
        assert self._outputs is not None
        found, self._outputs = self._outputs, None
        yield from ()
        return found

    def backward(self, total: Tensor) -> None:
        """See `Pass`."""
        total.backward()


def own_passes(micros: Iterable[Micro], compute: Callable[[Micro], Outputs]) -> Iterator[Pass]:
    """Yield the passes of one process, each when the one before it is done."""
    return (OwnPass(micro, compute) for micro in micros)


def pull_back(outputs: Outputs, gradients: list[Tensor | None]) -> None:
    """Run the backward pass from the gradients with respect to the figures, in their order."""
    pairs = [
        (part, gradient)
        for part, gradient in zip(outputs.parts(), gradients, strict=True)
        if gradient is not None and part.requires_grad
    ]
    if pairs:
        parts, given = zip(*pairs, strict=True)
        torch.autograd.backward(parts, given)
