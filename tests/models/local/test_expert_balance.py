"""How evenly the experts of a network are used, counted where they learn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from palaestra.models.local.architecture import Experts
from palaestra.models.local.feed_forward import Mixture, expert_balance
from tests.learning.made import grouped


def mixture(count: int = 4, chosen: int = 1) -> Mixture:
    """Return experts of which the router prefers number i for the i-th unit vector."""
    width = 8
    config = replace(grouped().config, hidden_size=width)
    found = Mixture(config, Experts(count, chosen, inner=8))
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.fill_(0.1)
        found.router.weight.copy_(10 * torch.eye(count, width))
    return found


def tokens(*numbers: int) -> torch.Tensor:
    return torch.eye(8)[list(numbers)]


def test_shares_are_those_of_the_chosen_experts() -> None:
    found = mixture()
    found(tokens(0, 0, 1))
    found(tokens(2))
    nats = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    balance = expert_balance(found)
    assert balance == pytest.approx({"expert_entropy": nats / math.log(4), "expert_max": 0.5})
    assert expert_balance(found) == {}  # counted anew


def test_one_expert_for_all_is_zero_and_all_alike_is_one() -> None:
    found = mixture()
    found(tokens(3, 3, 3))
    assert expert_balance(found) == {"expert_entropy": 0.0, "expert_max": 1.0}
    found(tokens(3, 2, 1, 0))
    assert expert_balance(found) == pytest.approx({"expert_entropy": 1.0, "expert_max": 0.25})


def test_passes_without_gradients_do_not_count() -> None:
    found = mixture()
    with torch.no_grad():
        found(tokens(0, 1))
    assert expert_balance(found) == {}


def test_layers_are_averaged_and_the_largest_share_is_of_any() -> None:
    layers = torch.nn.ModuleList([mixture(), mixture()])
    layers[0](tokens(0, 1, 2, 3))
    layers[1](tokens(0, 0, 0, 0))
    assert expert_balance(layers) == pytest.approx({"expert_entropy": 0.5, "expert_max": 1.0})


def test_a_network_without_experts_has_no_balance() -> None:
    assert expert_balance(grouped()) == {}
