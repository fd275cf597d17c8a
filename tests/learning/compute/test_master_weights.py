"""Weights in bf16 follow their masters, however small the steps are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation

STEP = 1e-6  # far below the distance of bf16 numbers at 0.05, which is 2e-4


def trained(steps: int) -> tuple[Tensor, nn.Parameter, MasterOptimiser]:
    """A weight before and after steps along a gradient of ones, and its optimiser."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter((torch.randn(512, 512, generator=generator) * 0.05).bfloat16())
    before = weight.detach().double()
    optimiser = MasterOptimiser({"weight": weight}, Optimisation(STEP))
    for _ in range(steps):
        weight.sum().backward()
        optimiser.step()
    return before, weight, optimiser


def test_steps_below_the_distance_of_bf16_numbers_are_not_lost() -> None:
    before, weight, optimiser = trained(steps=10)
    wanted = (optimiser.master_weights["weight"].double() - before).mean().item()
    moved = (weight.double() - before).mean().item()
    assert wanted == pytest.approx(-10 * STEP, rel=0.01)
    assert moved == pytest.approx(wanted, rel=0.1)


def test_restored_masters_give_the_same_weights() -> None:
    _, weight, optimiser = trained(steps=3)
    parts = {
        part: {name: tensor.clone() for name, tensor in tensors.items()}
        for part, tensors in optimiser.state().items()
    }
    other = nn.Parameter(torch.zeros_like(weight))
    MasterOptimiser({"weight": other}, Optimisation(STEP)).restore(parts)
    assert torch.equal(other, weight)
