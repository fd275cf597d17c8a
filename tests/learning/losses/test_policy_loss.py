"""Policy losses: the published numbers, units of the ratio, and where releases differ."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.data.rows import Row
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.kl import k3
from palaestra.learning.losses.policy_loss import (
    cispo,
    dapo,
    decoupled,
    grpo,
    gspo,
    loop,
    pg,
    ppo,
    proximal,
    unit_of,
)
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.component import Kind, find
from tests.learning.losses.made import batches, fp64, gradient, moved, tokens

D = [0.1, 0.1, -0.05, 0.05]


def one(loss, advantage, rho, **options):
    return float(loss(moved([math.log(rho)], [advantage]), **options).detach())


def listed(values):
    return pytest.approx(values.tolist(), abs=5e-5)


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_policy_gradient_is_advantage_times_log_probability():
    assert listed(pg(tokens([-1.0, -0.5], [-9.0, -9.0], [1.0, -3.0])).detach()) == [1.0, -1.5]


@pytest.mark.parametrize(
    ("advantage", "rho", "dual", "expected"),
    [
        (1, 1.5, 3.0, -1.2),
        (1, 0.5, 3.0, -0.5),
        (-1, 1.5, 3.0, 1.5),
        (-1, 0.5, 3.0, 0.8),
        (-1, 5.0, 3.0, 3.0),
        (-1, 5.0, math.inf, 5.0),
        (1, 5.0, math.inf, -1.2),
    ],
)
def test_ppo_clips_as_published(advantage, rho, dual, expected):
    assert one(ppo, advantage, rho, dual=dual) == pytest.approx(expected)


def test_a_clipped_token_has_no_gradient():
    batch = moved([math.log(1.5), math.log(0.5), math.log(5.0)], [1.0, -1.0, -1.0])
    assert gradient(ppo, batch).tolist() == [0, 0, 0]


def test_dapo_clips_higher_above_than_below():
    assert one(dapo, 1, 1.5) == pytest.approx(-1.28)
    assert one(dapo, -1, 0.5) == pytest.approx(0.8)


def test_loop_per_token_gives_the_published_numbers():
    objective = -loop(moved(D, 0.8333)).detach()
    assert listed(objective) == [0.9166, 0.9166, 0.7927, 0.8760]
    assert float(objective.mean()) == pytest.approx(0.8755, abs=5e-5)


def test_loop_per_turn_gives_the_published_numbers():
    objective = -loop(moved(D, 0.8333, turn=[0, 0, 1, 1]), unit="turn").detach()
    assert listed(objective) == [0.9166, 0.9166, 0.8333, 0.8333]
    assert float(objective[::2].mean()) == pytest.approx(0.8750, abs=5e-5)


def test_loop_per_rollout_gives_the_published_number():
    objective = -loop(moved(D, 0.8333), unit="rollout").detach()
    assert listed(objective) == [0.9166] * 4


def test_loop_clips_symmetrically_in_logarithms():
    assert one(loop, 1, 1.5) == pytest.approx(-1.1)
    assert one(loop, -1, 0.5) == pytest.approx(1 / 1.1)  # not 0.9
    assert one(loop, -1, 1.5) == pytest.approx(1.5)
    assert one(loop, 1, 0.5) == pytest.approx(-0.5)


ROLLOUTS = [[2, 2], [1, 3, 1], [4]]  # tokens of each turn


def rollouts(seed):
    """Tokens of `ROLLOUTS` with one advantage per turn, and their rows."""
    g = torch.Generator().manual_seed(seed)
    turn, rollout, rows = [], [], []
    for member, sizes in enumerate(ROLLOUTS):
        calls = []
        for call, size in enumerate(sizes):
            turn += [10 * member + call] * size
            rollout += [member] * size
            calls += [call] * size
        n = len(calls)
        rows.append(Row(Key("rl/1", 0, member), [0] * n, [True] * n, [0.0] * n, calls))
    d = 0.1 * torch.randn(len(turn), generator=g)
    per_turn = torch.randn(30, generator=g, dtype=torch.float64)
    return moved(d.tolist(), per_turn[turn], turn=turn, rollout=rollout), rows


def weights_of(rows, aggregation):
    return fp64([w for row in token_weights(rows, aggregation) for w in row])


def bounded(rho, advantage, epsilon=0.1):
    limit = (1 + epsilon) * advantage if advantage >= 0 else advantage / (1 + epsilon)
    return torch.minimum(rho * advantage, limit)


@pytest.mark.parametrize("seed", range(5))
def test_a_mean_over_turns_is_loops_objective_per_turn_in_value_and_gradient(seed):
    batch, rows = rollouts(seed)
    weight = weights_of(rows, Aggregation.TURN_MEAN)
    total = torch.zeros((), dtype=torch.float64)
    for member, sizes in enumerate(ROLLOUTS):
        for call in range(len(sizes)):
            own = batch.turn == 10 * member + call
            rho = (batch.lp[own] - batch.lp_old[own]).sum().exp()
            objective = bounded(rho, batch.advantage[own][0])
            total = total - objective / (len(ROLLOUTS) * len(sizes))
    found = (weight * loop(batch, unit="turn")).sum()
    assert float(found.detach()) == pytest.approx(float(total.detach()))
    assert close(torch.autograd.grad(found, batch.lp)[0], torch.autograd.grad(total, batch.lp)[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("loss", "reduce", "bound"),
    [
        (partial(loop, unit="rollout"), torch.sum, bounded),
        (
            partial(gspo, low=0.2, high=0.2),
            torch.mean,
            lambda rho, a: torch.minimum(rho * a, rho.clamp(0.8, 1.2) * a),
        ),
    ],
    ids=["loop", "gspo"],
)
def test_a_mean_over_rollouts_is_the_objective_per_rollout_in_value_and_gradient(
    loss, reduce, bound, seed
):
    batch, rows = rollouts(seed)
    advantage = fp64([0.7, -0.4, 1.3])
    batch = tokens(
        batch.lp.detach(),
        batch.lp_old,
        advantage[batch.rollout],
        turn=batch.turn.tolist(),
        rollout=batch.rollout.tolist(),
    )
    weight = weights_of(rows, Aggregation.ROLLOUT_TOKEN_MEAN)
    total = torch.zeros((), dtype=torch.float64)
    for member in range(len(ROLLOUTS)):
        own = batch.rollout == member
        rho = reduce(batch.lp[own] - batch.lp_old[own]).exp()
        total = total - bound(rho, advantage[member]) / len(ROLLOUTS)
    found = (weight * loss(batch)).sum()
    assert float(found.detach()) == pytest.approx(float(total.detach()))
    assert close(torch.autograd.grad(found, batch.lp)[0], torch.autograd.grad(total, batch.lp)[0])


@pytest.mark.parametrize("loss", [loop, partial(gspo, low=0.2, high=0.2)], ids=["loop", "gspo"])
def test_a_rejected_token_moves_nothing_through_its_neighbours(loss):
    batch = moved([0.02, -0.01, 0.01], turn=[0, 0, 0])
    found = gradient(partial(loss, unit="turn"), batch, fp64([1.0, 0.0, 1.0]))
    assert [value != 0 for value in found.tolist()] == [True, False, True]


def test_gspo_takes_the_geometric_mean_and_clips_at_a_thousandth_of_ppos_bounds():
    d = [0.3, -0.1, 0.1, 0.1]
    assert listed(gspo(moved(d, -1.0)).detach()) == [1.1052] * 4
    assert listed(gspo(moved(d, 1.0)).detach()) == [-1.0004] * 4
    assert listed(ppo(moved(d, -1.0)).detach()) == [1.3499, 0.9048, 1.1052, 1.1052]


def test_gspo_per_turn_does_not_hide_one_bad_turn():
    d, turn = [0.3, 0.3, -0.3, -0.3], [0, 0, 1, 1]
    assert listed(gspo(moved(d, -1.0, turn=turn)).detach()) == [1.0] * 4
    by_turn = gspo(moved(d, -1.0, turn=turn), unit="turn").detach()
    assert [math.exp(0.3)] * 2 + [1 - 3e-4] * 2 == listed(by_turn)


def test_gspo_needs_more_than_a_token():
    with pytest.raises(RecipeError, match="ppo"):
        gspo(moved(D), unit="token")


@pytest.mark.parametrize(
    ("floor", "cap", "weights"),
    [(0.0, 5.0, [0.5, 1.5, 5.0]), (0.8, 1.28, [0.8, 1.28, 1.28])],
    ids=["TRL", "verl"],
)
def test_cispo_caps_the_weight_and_keeps_every_gradient(floor, cap, weights):
    batch = moved([math.log(0.5), math.log(1.5), math.log(6.0)], 1.0)
    assert [-w for w in weights] == listed(gradient(partial(cispo, floor=floor, cap=cap), batch))
    values = cispo(batch, floor=floor, cap=cap).detach()
    assert [-w * lp for w, lp in zip(weights, batch.lp.tolist(), strict=True)] == listed(values)


def test_decoupled_ppo_gives_the_published_numbers():
    batch = tokens([-0.9, -0.9], [-1.2, -1.2], [1.0, -1.0], lp_beh=[-1.5, -1.5])
    assert listed(decoupled(batch).detach()) == [-1.6198, 1.8221]
    coupled = tokens([-0.9], [-1.5], 1.0)
    assert listed(ppo(coupled).detach()) == [-1.2]


def test_decoupled_ppo_rejects_or_truncates_what_lies_too_far_back():
    batch = tokens([-1.0, -1.0], [-1.0, -1.0], 1.0, lp_beh=[-1.0 - math.log(6), -1.0])
    assert listed(decoupled(batch).detach()) == [0.0, -1.0]
    assert listed(decoupled(batch, mode="truncate").detach()) == [-5.0, -1.0]
    assert listed(decoupled(batch, cap=math.inf).detach()) == [-6.0, -1.0]
    with pytest.raises(UnknownName, match="cut"):
        decoupled(batch, mode="cut")


def test_the_proximal_policy_is_interpolated_between_versions():
    batch = tokens(
        [-0.9] * 4,
        [0.0] * 4,  # not read
        lp_beh=[-1.5] * 4,
        version=[3, 7, 6, 0],
        current=7,
        proximal=6,
    )
    assert listed(proximal(batch)) == [-1.05, -1.5, -1.5, -1.5 + 0.6 * 6 / 7]
    loss = decoupled(batch, approximate=True).detach()
    assert float(loss[0]) == pytest.approx(-math.exp(0.45) * math.exp(0.15))
    assert float(loss[1]) == pytest.approx(-1.2)


def test_weights_that_do_not_count_as_newer_are_their_own_proximal_policy():
    batch = tokens([-0.9], [0.0], lp_beh=[-1.5], version=[6], current=7, proximal=7)
    assert listed(proximal(batch)) == [-0.9]


@given(batch=batches())
def test_grpo_without_beta_is_ppo(batch):
    assert torch.equal(grpo(batch), ppo(batch))


@given(batch=batches())
def test_beta_adds_that_much_kl_to_the_loss(batch):
    expected = ppo(batch) + 0.04 * k3(batch.lp, batch.lp_ref)
    assert close(grpo(batch, beta=0.04), expected)
    assert close(gspo(batch, beta=0.04), gspo(batch) + 0.04 * k3(batch.lp, batch.lp_ref))


def test_beta_needs_a_reference():
    with pytest.raises(RecipeError, match="reference"):
        grpo(moved(D), beta=0.1)


@pytest.mark.parametrize(
    ("name", "options", "unit"),
    [
        ("ppo", {}, Unit.TOKEN),
        ("loop", {}, Unit.TOKEN),
        ("loop", {"unit": "turn"}, Unit.TURN),
        ("loop", {"unit": "rollout"}, Unit.ROLLOUT),
        ("gspo", {}, Unit.ROLLOUT),
        ("gspo", {"unit": "turn"}, Unit.TURN),
    ],
)
def test_the_learner_can_ask_what_a_loss_needs_whole(name, options, unit):
    assert unit_of(name, options) is unit
    assert unit_of(find(Kind.LOSS, name), options) is unit


def test_an_unknown_unit_is_named():
    with pytest.raises(UnknownName, match="sentence"):
        unit_of("loop", {"unit": "sentence"})
    with pytest.raises(UnknownName, match="sentence"):
        loop(moved(D), unit="sentence")


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (ppo, {"low": -0.1}),
        (ppo, {"dual": 0.5}),
        (dapo, {"high": -0.1}),
        (loop, {"epsilon": -0.1}),
        (cispo, {"cap": 0.28}),  # verl's "1 + high" mistaken for the cap
        (decoupled, {"cap": 0.5}),
    ],
)
def test_bounds_that_would_clip_the_policy_itself_are_errors(loss, options):
    with pytest.raises(RecipeError, match="on policy"):
        loss(moved(D), **options)
