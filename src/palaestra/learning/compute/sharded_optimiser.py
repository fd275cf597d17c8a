"""AdamW whose gradients, master weights and moments are divided among the ranks.

Each rank holds all parameters, since it runs its own passes and rank 0 acts with them, but sums,
keeps and steps along one part of the gradient only (ZeRO, stage 2: Rajbhandari et al. 2020, "ZeRO:
memory optimizations toward training trillion parameter models"). After a step each rank rounds its
part of the master weights into the parameters, and all exchange their parts.

The ranks run their backward passes at the same time. As soon as one has passed a layer, the
gradients of the layer above are complete: they are summed over the ranks, each keeps its part of
the sum, and the rest is freed. So all ranks take part in each backward pass, those without rows
as well. In a deterministic run the sum visits the ranks instead (see `leading`): then gradients
are whole until they are summed, and only what the optimiser keeps between steps is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from palaestra.learning.compute.master_weights import (
    WEIGHTS,
    MasterOptimiser,
    Optimisation,
    Parts,
    is_wide,
    widen,
)
from palaestra.learning.compute.shards import Layout, Sharding, run_of
from palaestra.learning.parallel import buckets
from palaestra.models.local.rounding import round_into


class ShardedOptimiser(MasterOptimiser):
    """Optimiser of one rank; every rank has one of the same parameters."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        optimisation: Optimisation,
        sharding: Sharding,
        layer_of: Callable[[str], int | None],
    ) -> None:
        """Take this rank's part of the weights as they are; all ranks must have the same.

        Args:
            parameters: by name, contiguous in memory.
            optimisation: settings.
            sharding: all ranks, and how they divide gradients.
            layer_of: the layer of a parameter by its name; a backward pass leaves it before it
                reaches the next lower one. The parameters of None are complete at its end.
        """
        self._ranks, self._whole = sharding.ranks, sharding.whole
        self._totals = {
            name: p if is_wide(p) else _without_memory(p) for name, p in parameters.items()
        }
        layers = {name: layer_of(name) for name in parameters}
        order = sorted({one for one in layers.values() if one is not None}, reverse=True)
        self._units = [
            [name for name, layer in layers.items() if layer == one] for one in (*order, None)
        ]
        self._unit_of = {name: at for at, unit in enumerate(self._units) for name in unit}
        self._done: int | None = None  # units summed in the pass under way; None: there is none
        self._reached: set[str] = set()
        self._norms: dict[str, Tensor] = {}  # of the summed gradients
        super().__init__(parameters, optimisation)

    def _masters(self) -> dict[str, nn.Parameter]:
        found = {}
        for name, p in self.parameters.items():
            own = p.detach().view(-1)[self._own(p)]  # of the same memory
            found[name] = nn.Parameter(own if is_wide(p) else own.float())
        return found

    def _own(self, tensor: Tensor) -> slice:
        return run_of(tensor.numel(), self._ranks.rank, self._ranks.world)

    # ── gradients ────────────────────────────────────────────────────────────

    @property
    def totals(self) -> Mapping[str, nn.Parameter]:
        return self._totals if self._whole else {}

    @property
    def reached(self) -> Collection[str]:
        return self._reached

    def _accumulating(self) -> list[RemovableHandle]:
        return [
            parameter.register_post_accumulate_grad_hook(partial(self._accumulate, name))
            for name, parameter in self.parameters.items()
        ]

    def _accumulate(self, name: str, parameter: Tensor) -> None:
        """Take the gradient of a parameter; those of the layers above it are complete."""
        if self._done is None and not self._whole:
            parameter.grad = None  # of a trial
            return
        if self._totals[name] is not parameter:
            widen(self._totals[name])(parameter)
        unit = self._unit_of[name]
        if self._done is not None and unit < len(self._units) - 1:
            assert unit >= self._done, f"{name} has a gradient after lower layers have"
            self._sum(unit)

    @contextmanager
    def adding(self) -> Iterator[None]:
        if self._whole:
            yield
            return
        self._done = 0
        try:
            yield
            self._sum(len(self._units))
        finally:
            self._done = None

    @torch.no_grad()
    def _sum(self, unit: int) -> None:
        """Sum the gradients of all units before this one over the ranks; keep this rank's part."""
        assert self._done is not None  # within `adding`
        while self._done < unit:
            for names, layout in self._bundles(self._units[self._done], self._totals):
                totals = [self._totals[name] for name in names]
                for name, total in zip(names, totals, strict=True):
                    if total.grad is not None:
                        self._reached.add(name)
                rows = layout.stacked([total.grad for total in totals], totals[0])
                for total in totals:
                    total.grad = None
                row = self._ranks.sum_parts(rows)
                for name, run in zip(names, layout.runs(row, self._ranks.rank), strict=True):
                    master = self.master_weights[name]
                    master.grad = run if master.grad is None else master.grad.add_(run)
            self._done += 1

    def _bundles(
        self, names: Sequence[str], like: Mapping[str, Tensor]
    ) -> Iterator[tuple[Sequence[str], Layout]]:
        """Yield the names of tensors that travel together, and how; `like`: of the same types."""
        at = 0
        for bucket in buckets([like[name] for name in names]):
            layout = Layout([total.numel() for total in bucket], self._ranks.world)
            yield names[at : at + len(bucket)], layout
            at += len(bucket)

    @torch.no_grad()
    def keep_own(self, names: Collection[str]) -> None:
        for name, master in self.master_weights.items():
            if name not in names:
                master.grad = None
            elif self._whole:
                total = self._totals[name]
                assert total.grad is not None  # a sum
                self._norms[name] = torch.linalg.vector_norm(total.grad)
                master.grad = total.grad.reshape(-1)[self._own(total)].clone()
                total.grad = None
        if self._whole:
            return
        kept = {name: m.grad for name, m in self.master_weights.items() if m.grad is not None}
        norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in kept.values()]
        if norms:
            squares = self._ranks.gather_parts(torch.stack(norms).square_()).sum(dim=0)
            self._norms = dict(zip(kept, squares.sqrt_(), strict=True))

    def alike(self) -> list[Tensor]:
        return [*self._norms.values()]

    def _total_norm(self, ending: str = "") -> Tensor:
        found = [norm for name, norm in self._norms.items() if name.endswith(ending)]
        return torch.linalg.vector_norm(torch.stack(found)) if found else torch.tensor(0.0)

    def drop_gradients(self) -> None:
        super().drop_gradients()
        for total in self._totals.values():
            total.grad = None
        self._reached, self._norms = set(), {}

    # ── state ────────────────────────────────────────────────────────────────

    @property
    def held_by_all(self) -> Mapping[str, Tensor]:
        return {}

    @torch.no_grad()
    def publish(self) -> None:
        """Round the master weights into the parameters; all ranks must do it at once."""
        for names, layout in self._bundles([*self.parameters], self.parameters):
            flat = [self.parameters[name].detach().view(-1) for name in names]
            runs = [whole[self._own(whole)] for whole in flat]
            for name, whole, run in zip(names, flat, runs, strict=True):
                if not is_wide(run):
                    round_into(run, self.master_weights[name].detach(), self._own(whole).start)
            layout.unstack(self._ranks.gather_parts(layout.row(runs)), flat)

    @torch.no_grad()
    def part(self, part: str) -> dict[str, Tensor]:
        """Return a part of the state, whole, on rank 0; all ranks must do it at once."""
        own = super().part(part)
        if part == "step":
            return own
        found: dict[str, Tensor] = {}
        for names, layout in self._bundles([*own], self._totals):
            rows = self._ranks.gather_parts(layout.row([own[name] for name in names]))
            if self._ranks.rank == 0:
                flat = [rows.new_empty(count) for count in layout.counts]
                layout.unstack(rows, flat)
                for name, whole in zip(names, flat, strict=True):
                    found[name] = whole.view_as(self.parameters[name])
        return found

    def own(self, part: str, name: str, tensor: Tensor) -> Tensor:
        """Return what this rank keeps of a tensor of a state."""
        if name not in self.parameters or part not in (WEIGHTS, "exp_avg", "exp_avg_sq"):
            return tensor
        return tensor.reshape(-1)[self._own(tensor)].clone()

    def load(self, parts: Parts) -> None:
        """Restore this rank's part of master weights and moments.

        Args:
            parts: of a whole state, or of what `own` returned of it.
        """
        super().load(
            {
                part: {
                    name: self.own(part, name, tensor)
                    if tensor.shape == self.parameters[name].shape
                    else tensor
                    for name, tensor in tensors.items()
                    if name in self.parameters
                }
                for part, tensors in parts.items()
            }
        )


def _without_memory(parameter: Tensor) -> nn.Parameter:
    """Return an fp32 parameter of that shape for a gradient; all its numbers are one."""
    return nn.Parameter(parameter.new_zeros((), dtype=torch.float32).expand(parameter.shape))
