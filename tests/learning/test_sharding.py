"""Ranks that divide gradients and the optimiser's state learn what one process learns."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.errors import InputError, RankLost
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.shards import ALIGNED, Layout, run_of
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.entropy_control import EntropyControl
from palaestra.learning.losses.policy_loss import pg, ppo, unit_of
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.component import Kind, components, find
from palaestra.learning.parallel import Ranks
from tests.learning.made import tiny
from tests.learning.ranks import Described, ended, leading, made, others, started
from tests.learning.test_parallel import (
    CRITICS,
    ENTROPIES,
    LOSSES,
    batch,
    check,
    credited,
    flat,
    gradient,
    rollouts_with_everything,
    run,
    while_learning,
)

FAST = ("ppo", "gspo", "loop")  # a loss of tokens, of sequences, of whole rollouts

State = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with others(2) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    with others(4) as ranks:
        ranks._links = dict(sorted(ranks._links.items(), reverse=True))  # joined in this order
        yield ranks


# ── who holds what ───────────────────────────────────────────────────────────


@given(counts=st.lists(st.integers(1, 100), min_size=1, max_size=5), world=st.integers(2, 5))
def test_every_number_is_held_by_one_rank_and_comes_back(counts: list[int], world: int) -> None:
    layout = Layout(counts, world)
    tensors = [torch.arange(1.0, count + 1) for count in counts]
    rows = layout.stacked(tensors, tensors[0])
    assert rows.shape == (world, layout.width)
    for rank, row in enumerate(rows):
        for run_here, tensor in zip(layout.runs(row, rank), tensors, strict=True):
            own = run_of(len(tensor), rank, world)
            assert torch.equal(run_here, tensor[own])
            assert own.start % ALIGNED == 0 or not len(run_here)
        assert torch.equal(layout.row(layout.runs(row, rank)), row)
    found = [torch.zeros(count) for count in counts]
    layout.unstack(rows, found)
    assert all(torch.equal(one, other) for one, other in zip(found, tensors, strict=True))


# ── gradients ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*loss, marks=[] if loss[0] in FAST and not loss[1] else pytest.mark.slow)
        for loss in LOSSES
    ],
)
def test_the_gradient_of_every_loss_is_that_of_one_process(
    two: Ranks, name: str, options: dict[str, Any]
) -> None:
    loss = find(Kind.LOSS, name).configured(options)
    whole = unit_of(name, options) is Unit.ROLLOUT
    work = partial(gradient, rows=batch(), loss=loss, whole_rollouts=whole)
    check(two, Described(shard=True), work)


@pytest.mark.slow
@pytest.mark.parametrize("rule", components(Kind.CREDIT))
def test_the_gradient_of_every_credit_rule_is_that_of_one_process(two: Ranks, rule: str) -> None:
    rollouts = rollouts_with_everything()
    rows = credited(rollouts, find(Kind.CREDIT, rule).configured({})(rollouts))
    described = Described(critic=CRITICS[0], shard=True)
    check(two, described, partial(gradient, rows=rows, loss=ppo), bits=False)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_ranks_with_fewer_rows_or_none_change_no_gradient(
    two: Ranks, count: int, lora: bool
) -> None:
    """Each row is a micro-batch; a critic and entropies learn too."""
    described = Described(lora=lora, critic=CRITICS[1], micro_tokens=1, shard=True)
    control = EntropyControl(ENTROPIES[0], 1, {})
    check(two, described, partial(gradient, rows=batch(count), loss=ppo, entropy=control.term))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_narrow_numbers_lose_nothing(two: Ranks, dtype: torch.dtype, lora: bool) -> None:
    described = Described(dtype, lora=lora, micro_tokens=1, shard=True)
    check(two, described, partial(gradient, rows=batch(), loss=ppo), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 3, 4, 9, 13])
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_four_ranks_learn_what_one_process_learns(
    four: Ranks, dtype: torch.dtype, count: int, lora: bool
) -> None:
    critic, control = CRITICS[1], EntropyControl(ENTROPIES[0], 1, {})
    described = Described(dtype, lora=lora, critic=critic, micro_tokens=1, shard=True)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-6
    work = partial(gradient, rows=batch(count), loss=ppo, entropy=control.term)
    check(four, described, work, tolerance)


# ── steps and state ──────────────────────────────────────────────────────────


def steps(learner: Learner, count: int = 2) -> dict[str, Tensor]:
    """Several AdamW steps: weights as they act and as they are trained, and both moments."""
    norms = [learner.update(batch(), ppo, learning_rate=1e-3).gradient_norm for _ in range(count)]
    acting = {name: p.detach().clone() for name, p in learner.model.network.named_parameters()}
    parts = {
        f"{part}.{name}": tensor.clone()
        for part, tensors in learner.state().items()
        for name, tensor in tensors.items()
    }
    return {**acting, **parts, "norms": torch.tensor(norms, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=str
)
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_step_of_adamw_is_that_of_one_process(
    request: pytest.FixtureRequest, world: int, dtype: torch.dtype, tolerance: float
) -> None:
    ranks = request.getfixturevalue({2: "two", 4: "four"}[world])
    described = Described(dtype, micro_tokens=1, shard=True)
    check(ranks, described, partial(steps, count=1), tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_in_order_whole_runs_have_the_bits_of_one_process(
    two: Ranks, dtype: torch.dtype, lora: bool
) -> None:
    """With clipped gradients, a reference that changes, and a state that is restored."""
    described = Described(
        dtype, lora=lora, critic=CRITICS[0], reference="start", clip_norm=1e-3, shard=True
    )

    def work(learner: Learner) -> dict[str, Tensor]:
        first = steps(learner)
        state = copied(learner)
        found = {"reference": flat(learner.reference(batch()))}
        learner.set_reference()
        learner.update(batch(), pg)
        found["new reference"] = flat(learner.reference(batch()))
        learner.restore(state)
        learner.update_values(batch())
        return {**{f"first {n}": t for n, t in first.items()}, **found, **steps(learner)}

    alone = run(made(described), work)
    together = run(leading(two, described, ordered=True), work)
    assert alone.keys() == together.keys()
    assert [n for n in alone if not torch.equal(alone[n], together[n])] == []


def copied(learner: Learner) -> State:
    return {
        part: {name: tensor.clone() for name, tensor in tensors.items()}
        for part, tensors in learner.state().items()
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_who_stopped_alone_goes_on_with_others_and_the_other_way_round(
    two: Ranks, dtype: torch.dtype
) -> None:
    described = Described(dtype, critic=CRITICS[0], shard=True)

    def begin(learner: Learner) -> State:
        steps(learner)
        return copied(learner)

    def go_on(learner: Learner, state: State) -> dict[str, Tensor]:
        learner.restore(state)
        return steps(learner)

    def divided() -> Learner:
        return leading(two, described, ordered=True)

    alone, shared = run(made(described), begin), run(divided(), begin)
    assert [*alone] == [*shared]
    for part in alone:
        assert [*alone[part]] == [*shared[part]]
        for name, tensor in alone[part].items():
            assert shared[part][name].dtype == tensor.dtype
            assert torch.equal(shared[part][name], tensor), (part, name)
    wanted = run(made(described), partial(go_on, state=alone))
    for found in (
        run(made(described), partial(go_on, state=shared)),
        run(divided(), partial(go_on, state=alone)),
    ):
        assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []


def test_each_rank_keeps_its_part_only(two: Ranks) -> None:
    described = Described(torch.bfloat16, shard=True)

    def kept(learner: Learner) -> int:
        learner.update(batch(), ppo)
        optimiser = learner.trained.optimiser
        tensors = [*optimiser.master_weights.values()]
        for moments in optimiser._adam.state.values():
            tensors += [moments["exp_avg"], moments["exp_avg_sq"]]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    alone, half = run(made(described), kept), run(leading(two, described), kept)
    assert 0.5 * alone <= half <= 0.56 * alone  # norms have fewer numbers than a run


def test_a_step_that_fails_leaves_the_ranks_as_they_were(two: Ranks) -> None:
    calls: list[Any] = []

    def fails_once(tokens: Any) -> Tensor:
        calls.append(tokens)
        if len(calls) == 2:
            raise InputError("fails_once")
        return -tokens.advantage * tokens.lp

    described = Described(micro_tokens=1, shard=True)
    alone = run(made(described), partial(steps, count=1))
    learner = leading(two, described)
    with pytest.raises(InputError, match="fails_once"):
        learner.update(batch(), fails_once)
    again = run(learner, partial(steps, count=1))
    for name, tensor in alone.items():
        assert torch.allclose(again[name], tensor, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float32, 3), (torch.bfloat16, 4)], ids=str)
def test_the_plan_counts_one_part_and_what_is_under_way(dtype: torch.dtype, copies: int) -> None:
    network = tiny().to(dtype)
    trained = everything(network).parameters
    size = 4 * sum(p.numel() for p in trained.values())
    alone, part = needs_of(network, trained), needs_of(network, trained, ranks=4)
    whole = needs_of(network, trained, ranks=4, whole_gradients=True)
    assert alone.optimiser == copies * size
    assert part.optimiser == pytest.approx(copies * size / 4, abs=len(trained))
    assert whole.optimiser == pytest.approx((copies - 1) * size / 4 + size, abs=len(trained))
    layers = [
        4 * sum(p.numel() for name, p in trained.items() if network.layer_of(name) == layer)
        for layer in (None, 0)
    ]
    assert part.fixed - alone.fixed >= layers[0] + 2 * layers[1]
    assert whole.fixed == alone.fixed


# ── lost ranks ───────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_killed_rank_ends_the_update_and_is_not_replaced_within_it() -> None:
    """Its part of the state is lost with it, so a checkpoint has to be read."""
    ranks, processes = started(2)
    described = Described(micro_tokens=1, shard=True)

    def replace(lost: RankLost) -> Ranks:
        raise AssertionError("asked for other ranks")

    learner = made(described, ranks)
    learner.lead(Leader(ranks, described, replace=replace))
    before = learner.trained.checksum()
    pid = processes[0].pid
    assert pid is not None
    loss = while_learning(lambda: os.kill(pid, signal.SIGKILL), 2)
    with pytest.raises(RankLost, match=r"rank 1 .* ended.*; it was"):
        learner.update(batch(), loss)
    assert learner.trained.checksum() == before
    assert learner.model.version == 0
    assert ended(ranks, processes) == [-signal.SIGKILL]
