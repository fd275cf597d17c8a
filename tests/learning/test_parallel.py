"""Ranks that learn together learn what one process learns."""

from __future__ import annotations

import torch
import pytest

from palaestra.learning.losses.policy_loss import pg
from tests.learning.made import gradients, sampled_rows
from tests.learning.ranks import Described, alone, others, together


@pytest.fixture(scope="module")
def two():
    with others(2) as (ranks, _):
        yield ranks


def test_first(two):
    rows = sampled_rows(7)
    d = Described()
    a = alone(d, lambda l: gradients(l, rows, pg))
    b = together(two, d, lambda l: gradients(l, rows, pg))
    for n in a:
        assert torch.allclose(a[n], b[n], rtol=1e-12, atol=1e-14)
    b = together(two, d, lambda l: gradients(l, rows, pg), ordered=True)
    for n in a:
        assert torch.equal(a[n], b[n])
