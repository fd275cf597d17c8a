"""The one optimiser of a scorer: AdamW, its minibatches, and its state.

The items of an update depend on the seed and the number of the update alone, so a restored
scorer continues exactly as if it had never stopped.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation, Parts

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


class Optimiser:
    """Optimiser of the parameters of `module` that require gradients."""

    def __init__(self, module: nn.Module, learning_rate: float, *, seed: int) -> None:
        self.seed, self.updates = seed, 0
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._optimiser = MasterOptimiser(trained, Optimisation(learning_rate))

    def minibatch(self, items: Sequence[T], size: int) -> list[T]:
        """Sample at most `size` items without replacement for the next update."""
        rng = random.Random(f"{self.seed}/{self.updates}")
        return rng.sample(items, min(size, len(items)))

    def step(self, losses: Iterable[Tensor]) -> float:
        """Run one update on the sum of the losses; each is freed before the next is made.

        If the gradient is not finite, the weights stay as they are.

        Returns:
            the sum.
        """
        total = 0.0
        for loss in losses:
            loss.backward()
            total += float(loss.detach())
        self._optimiser.step()
        self.updates += 1
        return total

    def state(self) -> Parts:
        """Return a copy of the weights, the moments, and the number of updates."""
        found = {
            part: {name: tensor.clone() for name, tensor in tensors.items()}
            for part, tensors in self._optimiser.state().items()
        }
        return {**found, "counters": {"updates": torch.tensor(self.updates)}}

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)
        self.updates = int(parts["counters"]["updates"])


def slow_copy(critic: M, dtype: torch.dtype) -> M:
    """Return a copy that `polyak` moves; in a wide type, or its small steps would be lost."""
    return copy.deepcopy(critic).to(dtype).requires_grad_(False)


@torch.no_grad()
def polyak(target: Iterable[Tensor], source: Iterable[Tensor], tau: float) -> None:
    """Move each target tensor by the share `tau` towards its source, in place.

    Source: ArCHer release (tau 0.1). The target is the slow copy of a critic, which provides
    the critic's targets.

    Raises:
        ValueError: different numbers of tensors.
    """
    for slow, fast in zip(target, source, strict=True):
        slow.lerp_(fast.to(slow.dtype), tau)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all parameters by name; `load_state_dict` restores them."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}
