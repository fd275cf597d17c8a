"""The loss on privileged numbers: its gradient, whatever the batch, and what is saved of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from palaestra.learning.compute.packing import Micro, Trained
from palaestra.learning.critics.privileged_head import PREFIX, PrivilegedLoss
from palaestra.learning.critics.value_head import state_of
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from tests.learning.made import gradients, grouped, learner_of, same, sampled_rows

SIZE = 3
LOSS = PrivilegedLoss(SIZE, coefficient=0.7, learning_rate=0.05)


def informed(rows: Sequence[Trained]) -> list[Trained]:
    """Rows of two turns, of whose first the state is known."""
    found = []
    for number, row in enumerate(rows):
        half = len(row.tokens) // 2
        turn = [0 if place < half else 1 for place in range(len(row.tokens))]
        known = {t for t, on in zip(turn, row.mask, strict=True) if on}
        numbers = {min(known): [0.1 * number, -0.5, 1.0]}
        found.append(replace(row, turn=turn, privileged=numbers))
    return found


ROWS = informed(sampled_rows(6))


def warmed(micro_tokens: int = 64) -> Learner:
    """A learner whose head is not zero any more, so that its loss has a gradient in the trunk."""
    learner = learner_of(grouped(), micro_tokens=micro_tokens, privileged=LOSS)
    head = learner._privileged
    assert head is not None
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        head.linear.weight.copy_(torch.randn(head.linear.weight.shape, generator=generator))
    return learner


def test_the_gradient_is_that_of_the_mean_squared_error_over_turns() -> None:
    learner = warmed()
    network, head = copy.deepcopy(learner.model.network), learner._privileged
    assert head is not None
    total = torch.zeros(())
    for row in ROWS:
        micro = Micro([row], network)
        first = row.mask.index(True)  # the turn that is known begins with the first trained token
        hidden = micro.hidden()[first - 1]
        predicted = head.linear(state_of(network, hidden[None]))[0]
        (numbers,) = row.privileged.values()
        total = total + (predicted - torch.tensor(numbers)).square().mean() / len(ROWS)
    idle = [replace(row, advantage=[0.0] * len(row.tokens)) for row in ROWS]
    (LOSS.coefficient * total).backward()
    expected = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    update = learner.update(idle, pg)
    assert update.figures()["privileged_loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    first_moment = 1 - learner.optimisation.betas[0]
    moments = learner.state()["exp_avg"]
    found = {name: moments[name] / first_moment for name in expected}
    assert same(found, expected)
    assert float(moments[PREFIX + "weight"].abs().max()) > 0


@pytest.mark.parametrize("micro_tokens", [10, 40, 1000])
def test_cutting_a_batch_changes_no_gradient(micro_tokens: int) -> None:
    assert same(gradients(warmed(micro_tokens), ROWS, pg), gradients(warmed(1000), ROWS, pg))


def test_rows_without_numbers_train_as_without_a_head() -> None:
    rows = sampled_rows(4)
    with_head = gradients(warmed(), rows, pg)
    without = gradients(learner_of(grouped()), rows, pg)
    assert all(torch.equal(with_head[name], without[name]) for name in without)


def test_the_head_learns_resumes_and_is_no_part_of_the_network() -> None:
    learner = warmed()
    losses = [learner.update(ROWS, pg, learning_rate=1e-4).privileged_loss for _ in range(20)]
    assert losses[0] is not None and losses[-1] is not None
    assert losses[-1] < 0.5 * losses[0]
    state = copy.deepcopy(learner.state())
    assert PREFIX + "weight" in state["weights"]
    assert not any(PREFIX in name for name, _ in learner.model.network.named_parameters())
    after = learner.update(ROWS, pg)
    other = learner_of(grouped(), privileged=LOSS)
    other.restore(state)
    assert other.update(ROWS, pg) == after
