"""Conflicts between the gradients of several task families, as pure functions of flat gradients.

Source: Yu et al. 2020, "Gradient Surgery for Multi-Task Learning" (PCGrad). Two gradients conflict
where their cosine is negative: a step along one undoes what the other learns. PCGrad takes each
family's gradient, removes in random order the part of it that opposes another family's original
gradient, and adds the results up. All of it depends on the F x F scalar products alone, so that no
projected gradient is ever stored.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from palaestra.learning.compute.packing import Trained


@dataclass(frozen=True, slots=True)
class Families:
    """The task families of one optimiser step, whose gradients are kept apart."""

    of: Mapping[Hashable, str]  # name of the family, by rollout
    project: bool  # combine their gradients by PCGrad; False: add them up
    seed: int  # of PCGrad's random order

    def combined(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Return the gradient of the step, flat [P], and the cosine of each pair of families.

        Args:
            gradients: flat [P], by name of the family; at least one.
        """
        every = list(gradients.values())
        dots = products(every)
        weights = torch.ones(len(every), dtype=dots.dtype)
        if self.project:
            weights = projection_weights(dots, seed=self.seed)
        found = cosines(dots)
        pairs = combinations(enumerate(gradients), 2)
        names = {f"{a} and {b}": float(found[i, j]) for (i, a), (j, b) in pairs}
        return weighted_sum(every, weights), names


def by_family(rows: Sequence[Trained], families: Families) -> dict[str, list[Trained]]:
    """Return the rows of each family, in the order of the families' names."""
    found: dict[str, list[Trained]] = {}
    for row in rows:
        found.setdefault(families.of[row.rollout], []).append(row)
    return dict(sorted(found.items()))


def products(gradients: Sequence[Tensor]) -> Tensor:
    """Return the scalar products of F flat gradients, [F, F] in float64."""
    pairs = [[float(torch.dot(a, b)) for b in gradients] for a in gradients]
    return torch.tensor(pairs, dtype=torch.float64)


def cosines(products: Tensor) -> Tensor:
    """Return the cosines of gradients, [F, F], from their scalar products [F, F]; 0 with a zero."""
    norms = products.diagonal().sqrt()
    scale = norms[:, None] * norms[None, :]
    return torch.where(scale > 0, products / scale.clamp_min(torch.finfo(scale.dtype).tiny), 0.0)


def projection_weights(products: Tensor, *, seed: int) -> Tensor:
    """Return by how much each gradient counts in PCGrad's sum, [F].

    Without a conflict, every weight is 1: the sum is that of the gradients.

    Args:
        products: scalar products of the gradients, [F, F].
        seed: of the order in which each gradient meets the others.
    """
    rng, count = random.Random(seed), len(products)
    total = torch.zeros(count, dtype=torch.float64)
    for own in range(count):
        parts = torch.zeros(count, dtype=torch.float64)  # of the projected gradient
        parts[own] = 1.0
        others = [other for other in range(count) if other != own]
        rng.shuffle(others)
        for other in others:
            along = parts @ products[:, other]
            if along < 0:  # then products[other, other] > 0
                parts[other] -= along / products[other, other]
        total += parts
    return total


def weighted_sum(gradients: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the sum of F flat gradients [P] by their weights [F], [P]."""
    total = torch.zeros_like(gradients[0])
    for weight, gradient in zip(weights.tolist(), gradients, strict=True):
        total.add_(gradient, alpha=weight)
    return total
