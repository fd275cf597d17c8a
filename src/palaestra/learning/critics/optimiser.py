"""The one optimiser of a scorer: AdamW, the minibatches it is shown, and its state.

Which items an update sees depends on the seed and the number of the update alone, so a
scorer that was restored goes on exactly as if it had never stopped.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from palaestra.learning.masters import MasterOptimiser, Optimisation, Parts

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


class Optimiser:
    """Moves the parameters of `module` that require gradients."""

    def __init__(self, module: nn.Module, learning_rate: float, *, seed: int) -> None:
        self.seed, self.updates = seed, 0
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._masters = MasterOptimiser(trained, Optimisation(learning_rate))

    def minibatch(self, items: Sequence[T], size: int) -> list[T]:
        """At most `size` items drawn without replacement for the next update."""
        draw = random.Random(f"{self.seed}/{self.updates}")
        return draw.sample(items, min(size, len(items)))

    def step(self, losses: Iterable[Tensor]) -> float:
        """One update on the sum of the losses, each of which is freed before the next is made.

        Where the gradient is not finite, nothing moves.

        Returns:
            the sum.
        """
        total = 0.0
        for loss in losses:
            loss.backward()
            total += float(loss.detach())
        self._masters.step()
        self.updates += 1
        return total

    def state(self) -> Parts:
        """A copy of the weights, the moments, and the number of updates."""
        found = {
            part: {name: tensor.clone() for name, tensor in tensors.items()}
            for part, tensors in self._masters.state().items()
        }
        return {**found, "counters": {"updates": torch.tensor(self.updates)}}

    def restore(self, parts: Parts) -> None:
        """Put back what `state` gave."""
        self._masters.restore(parts)
        self.updates = int(parts["counters"]["updates"])


def slow_copy(critic: M, dtype: torch.dtype) -> M:
    """A copy that `polyak` moves; in a wide type, or its small steps would be rounded away."""
    return copy.deepcopy(critic).to(dtype).requires_grad_(False)


@torch.no_grad()
def polyak(target: Iterable[Tensor], source: Iterable[Tensor], tau: float) -> None:
    """Move each target tensor by the share `tau` towards its source, in place.

    Source: ArCHer release (tau 0.1). The target is the slow copy of a critic, from which what
    the critic should say is read.

    Raises:
        ValueError: different numbers of tensors.
    """
    for slow, fast in zip(target, source, strict=True):
        slow.lerp_(fast.to(slow.dtype), tau)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters by name; `load_state_dict` puts them back."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}
