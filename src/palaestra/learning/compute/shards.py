"""Shards: which part of every tensor each rank holds, where ranks divide what they learn with.

A tensor is read as a flat list of numbers and cut into as many runs of equal length as there are
ranks; the last ones may be short, or empty. Several tensors travel together as one tensor
[ranks, n], whose rows hold the runs of one rank each, filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

ALIGNED = 16  # numbers: each run begins at a cache line, where vector instructions do


class Exchange(Protocol):
    """What ranks send each other; see `parallel.Ranks`."""

    rank: int
    world: int

    def sum_parts(self, parts: Tensor) -> Tensor: ...

    def gather_parts(self, own: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Sharding:
    """How ranks divide what they learn with."""

    ranks: Exchange
    whole: bool = False  # gradients are whole until they are summed, as deterministic runs need


def run_of(count: int, rank: int, world: int) -> slice:
    """Return which of `count` numbers a rank holds."""
    length = _length(count, world)
    return slice(min(rank * length, count), min((rank + 1) * length, count))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where several tensors stand in one that travels."""

    counts: Sequence[int]  # numbers of each tensor
    world: int  # ranks

    @property
    def width(self) -> int:
        """The length of a row."""
        return sum(_length(count, self.world) for count in self.counts)

    def runs(self, row: Tensor, rank: int) -> list[Tensor]:
        """Return the runs of all tensors in the row [n] of a rank, as views of it."""
        parts = row.split([_length(count, self.world) for count in self.counts])
        found = []
        for part, count in zip(parts, self.counts, strict=True):
            own = run_of(count, rank, self.world)
            found.append(part[: own.stop - own.start])
        return found

    def row(self, runs: Sequence[Tensor]) -> Tensor:
        """Return the row [n] of this rank's runs of all tensors."""
        row = runs[0].new_zeros(self.width)
        parts = row.split([_length(count, self.world) for count in self.counts])
        for part, run in zip(parts, runs, strict=True):
            part[: len(run)] = run
        return row

    def stacked(self, tensors: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """Return the tensors as [ranks, n] of a type and device; None stands for zeros."""
        rows = torch.zeros(self.world, self.width, dtype=like.dtype, device=like.device)
        for rank, row in enumerate(rows):
            for run, tensor, count in zip(self.runs(row, rank), tensors, self.counts, strict=True):
                if tensor is not None:
                    run.copy_(tensor.reshape(-1)[run_of(count, rank, self.world)])
        return rows

    def unstack(self, rows: Tensor, into: Sequence[Tensor]) -> None:
        """Copy what `stacked` put together into flat tensors."""
        for rank, row in enumerate(rows):
            for run, flat in zip(self.runs(row, rank), into, strict=True):
                flat[run_of(len(flat), rank, self.world)] = run


def _length(count: int, world: int) -> int:
    """Return how many of `count` numbers the first rank holds."""
    return -(-count // (world * ALIGNED)) * ALIGNED
