"""AdamW on fp32 master copies of the weights that it trains.

Weights narrower than fp32 would lose small steps to rounding, and small gradients when
they are summed: the optimiser works on fp32 copies, gradients accumulate in fp32, and each
step rounds the master weights back into the weights, by thresholds that keep small changes
(`rounding`). Wider weights are their own masters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from palaestra.models.local.kernels.fused import kernels_for
from palaestra.models.local.rounding import round_into

Parts = dict[str, dict[str, Tensor]]
"""What a checkpoint holds: part -> name of a tensor -> tensor."""

WEIGHTS = "weights"  # the part of master weights
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True)
class Optimisation:
    """Settings of the optimiser."""

    learning_rate: float
    memory: int | None = None  # bytes it may take besides the weights; None: see `MemoryBudget`
    clip_norm: float = 1.0  # bound on the gradient's norm
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)


class MasterOptimiser:
    """Optimiser of named parameters, which other code may read between steps."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], optimisation: Optimisation) -> None:
        self.parameters, self.clip_norm = dict(parameters), optimisation.clip_norm
        self.master_weights = self._masters()
        self._adam = torch.optim.AdamW(
            list(self.master_weights.values()),
            lr=optimisation.learning_rate,
            betas=optimisation.betas,
            weight_decay=optimisation.weight_decay,
            fused=True,
        )
        self._hooks = self._accumulating()

    def _masters(self) -> dict[str, nn.Parameter]:
        """Return what the optimiser works on, by name."""
        return {
            name: p if is_wide(p) else nn.Parameter(p.detach().float())
            for name, p in self.parameters.items()
        }

    def _accumulating(self) -> list[RemovableHandle]:
        """Let the gradients of narrow parameters accumulate in fp32."""
        return [
            parameter.register_post_accumulate_grad_hook(widen(self.master_weights[name]))
            for name, parameter in self.parameters.items()
            if parameter is not self.master_weights[name]
        ]

    @property
    def learning_rate(self) -> float:
        """The rate of the last step, or the one that the next step takes."""
        return float(self._adam.param_groups[0]["lr"])

    def close(self) -> None:
        """Release the parameters, so that another optimiser can train them."""
        for hook in self._hooks:
            hook.remove()

    def step(self, learning_rate: float | None = None) -> float:
        """Update the weights along the clipped gradient, then drop the gradient.

        Args:
            learning_rate: used from now on; None keeps the present one.

        Returns:
            the gradient's norm before clipping. If it is not finite, the weights stay as they are:
            such a gradient would destroy them.
        """
        if learning_rate is not None:
            for group in self._adam.param_groups:
                group["lr"] = learning_rate
        total = self._total_norm()
        norm = float(total)
        if norm > self.clip_norm:
            nn.utils.clip_grads_with_norm_(self.master_weights.values(), self.clip_norm, total)
        if math.isfinite(norm):
            self._adam.step()
        self.drop_gradients()
        self.publish()
        return norm

    def norm(self, ending: str) -> float:
        """Return the gradient's norm over the weights whose names end so, before clipping."""
        return float(self._total_norm(ending))

    def _total_norm(self, ending: str = "") -> Tensor:
        named = self.master_weights.items()
        return nn.utils.get_total_norm(
            [m.grad for name, m in named if name.endswith(ending) and m.grad is not None]
        )

    def take_gradient(self) -> Tensor:
        """Return the accumulated gradient of all weights, flat [P], and drop it."""
        masters = self.master_weights.values()
        parts = [(torch.zeros_like(m) if m.grad is None else m.grad).flatten() for m in masters]
        self.drop_gradients()
        return torch.cat(parts)

    def put_gradient(self, flat: Tensor) -> None:
        """Make a flat gradient [P] the one of the next step."""
        masters = list(self.master_weights.values())
        for master, part in zip(masters, flat.split([m.numel() for m in masters]), strict=True):
            master.grad = part.view_as(master).to(master.dtype)

    # ── with other ranks ─────────────────────────────────────────────────────
    # Each rank has an optimiser of the same parameters. See `ShardedOptimiser` for ranks that
    # divide them; here, each holds all.

    @property
    def totals(self) -> Mapping[str, nn.Parameter]:
        """What holds gradients that are summed over the ranks after the last pass."""
        return self.master_weights

    @property
    def reached(self) -> Collection[str]:
        """Names of what has a gradient that passes have summed over the ranks already."""
        return ()

    @property
    def held_by_all(self) -> Mapping[str, Tensor]:
        """What all ranks hold alike besides the parameters."""
        return self.master_weights

    def adding(self) -> AbstractContextManager[None]:
        """Return a context for a backward pass, which all ranks run at once."""
        return nullcontext()

    def keep_own(self, names: Collection[str]) -> None:
        """Keep of the summed gradients what this rank steps along.

        Args:
            names: of what has a gradient on any rank.
        """

    def alike(self) -> list[Tensor]:
        """Return what all ranks must hold alike of the summed gradients before they step."""
        return [m.grad for m in self.master_weights.values() if m.grad is not None]

    def own(self, part: str, name: str, tensor: Tensor) -> Tensor:
        """Return what this rank keeps of a tensor of a state."""
        return tensor

    # ── state ────────────────────────────────────────────────────────────────

    def drop_gradients(self) -> None:
        """Drop the accumulated gradients."""
        self._adam.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Drop the moments, as if no step had been taken."""
        self._adam.state.clear()

    def state(self) -> Parts:
        """Return master weights and moments; the weights are the very tensors, not copies."""
        return {part: self.part(part) for part in (WEIGHTS, *MOMENTS)}

    def part(self, part: str) -> dict[str, Tensor]:
        """Return a part of `state`."""
        named, moments = self.master_weights.items(), self._adam.state
        if part == WEIGHTS:
            return {name: master.detach() for name, master in named}
        return {name: moments[master][part] for name, master in named if master in moments}

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned; ignore other names."""
        self.load(parts)
        self.publish()

    @torch.no_grad()
    def load(self, parts: Parts) -> None:
        """Restore master weights and moments alone; `publish` makes them the parameters."""
        self.forget()
        for name, master in self.master_weights.items():
            master.copy_(parts[WEIGHTS][name])
            if name in parts["step"]:
                self._adam.state[master] = {
                    part: parts[part][name].to(master.device, copy=True) for part in MOMENTS
                }

    @torch.no_grad()
    def publish(self) -> None:
        """Round the master weights into the parameters."""
        for name, parameter in self.parameters.items():
            if parameter is not self.master_weights[name]:
                round_into(parameter, self.master_weights[name])


def is_wide(parameter: Tensor) -> bool:
    """Return whether a parameter needs no wider copy to be trained."""
    return torch.finfo(parameter.dtype).bits >= 32


def widen(master: nn.Parameter) -> Callable[[Tensor], None]:
    """Return a hook that adds a parameter's gradient to its master weight's once complete."""

    def add(parameter: Tensor) -> None:
        assert parameter.grad is not None
        if master.grad is None:
            master.grad = parameter.grad.float()
        else:
            _add(master.grad, parameter.grad)
        parameter.grad = None

    return add


def _add(total: Tensor, x: Tensor) -> None:
    """Add `x` in place, without a wide copy of it where possible."""
    kernels = kernels_for(x)
    if kernels is not None and total.is_contiguous() and x.is_contiguous():
        kernels.widen_add(total, x)
    else:
        total.add_(x)
