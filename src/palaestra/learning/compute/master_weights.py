"""AdamW on fp32 master copies of the weights that it trains.

Weights narrower than fp32 would lose small steps to rounding, and small gradients when
they are summed: the optimiser works on fp32 copies, gradients accumulate in fp32, and each
step rounds the master weights back into the weights, by thresholds that keep small changes
(`rounding`). Wider weights are their own masters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from palaestra.models.local.kernels.fused import kernels_for
from palaestra.models.local.rounding import round_into

Parts = dict[str, dict[str, Tensor]]
"""What a checkpoint holds: part -> name of a tensor -> tensor."""

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
        self.master_weights = {
            name: p if torch.finfo(p.dtype).bits >= 32 else nn.Parameter(p.detach().float())
            for name, p in self.parameters.items()
        }
        self._adam = torch.optim.AdamW(
            list(self.master_weights.values()),
            lr=optimisation.learning_rate,
            betas=optimisation.betas,
            weight_decay=optimisation.weight_decay,
            fused=True,
        )
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(_widen(self.master_weights[name]))
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
        gradients = [m.grad for m in self.master_weights.values() if m.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)
        if norm > self.clip_norm:
            nn.utils.clip_grads_with_norm_(self.master_weights.values(), self.clip_norm, total)
        if math.isfinite(norm):
            self._adam.step()
        self.drop_gradients()
        self._publish()
        return norm

    def norm(self, ending: str) -> float:
        """Return the gradient's norm over the weights whose names end so, before clipping."""
        named = self.master_weights.items()
        return float(
            nn.utils.get_total_norm(
                [m.grad for name, m in named if name.endswith(ending) and m.grad is not None]
            )
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

    def drop_gradients(self) -> None:
        """Drop the accumulated gradients."""
        self._adam.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Drop the moments, as if no step had been taken."""
        self._adam.state.clear()

    def state(self) -> Parts:
        """Return master weights and moments; the weights are the very tensors, not copies."""
        moments = self._adam.state
        parts: Parts = {"weights": {name: m.detach() for name, m in self.master_weights.items()}}
        for part in MOMENTS:
            parts[part] = {
                name: moments[m][part] for name, m in self.master_weights.items() if m in moments
            }
        return parts

    @torch.no_grad()
    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned; ignore other names."""
        self.forget()
        for name, master in self.master_weights.items():
            master.copy_(parts["weights"][name])
            if name in parts["step"]:
                self._adam.state[master] = {
                    part: parts[part][name].to(master.device, copy=True) for part in MOMENTS
                }
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        """Round the master weights into the parameters."""
        for name, parameter in self.parameters.items():
            if parameter is not self.master_weights[name]:
                round_into(parameter, self.master_weights[name])


def _widen(master: nn.Parameter) -> Callable[[Tensor], None]:
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
