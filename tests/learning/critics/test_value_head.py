"""Critics: values of states, their regression, and what they do and do not move."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.credit.rule import discounted, explained_variance
from palaestra.learning.critics.separate_critic import SeparateCritic
from palaestra.learning.critics.value_head import Critic, value_loss
from palaestra.learning.losses.policy_loss import pg, ppo
from tests.learning.made import (
    finish,
    gradients,
    grouped,
    learner_of,
    resident,
    same,
    sampled_rows,
    tiny,
)

NAN = float("nan")
numbers = st.floats(-3, 3)


def with_targets(rows):
    """A return that depends on the state: whether the token before is odd."""
    return [
        replace(row, value_target=[NAN, *(float(t % 2) for t in row.tokens[:-1])]) for row in rows
    ]


def targets_of(rows):
    pairs = (zip(row.value_target, row.mask, strict=True) for row in rows)
    return torch.tensor([target for pair in pairs for target, on in pair if on])


def flat(values):
    return torch.tensor([v for row in values for v in row])


def separate(network=None, rate=1e-2, micro_tokens=64):
    critic = SeparateCritic(network or tiny(), Optimisation(rate))
    critic.budget.tokens = micro_tokens
    return critic


def learned(rows, **options):
    """A learner whose critic has learned something."""
    learner = learner_of(tiny(), critic=Critic(0.05, **options))
    for _ in range(10):
        learner.update_values(rows)
    return learner


# ── the loss ─────────────────────────────────────────────────────────────────


def losses(values, targets, old=None, clip=None):
    tensors = [
        None if x is None else torch.tensor(x, dtype=torch.float64) for x in (values, targets, old)
    ]
    return value_loss(*tensors, clip).tolist()


def test_the_value_loss_is_as_published():
    assert losses([0.9], [1.0], [0.5], 0.2) == pytest.approx([0.0450])
    assert losses([0.9], [1.0]) == pytest.approx([0.0050])


@given(numbers, numbers, numbers, st.floats(0.01, 2))
def test_a_clip_can_only_raise_the_loss_and_only_where_the_value_moved_further(v, goal, old, clip):
    (plain,), (clipped,) = losses([v], [goal]), losses([v], [goal], [old], clip)
    assert clipped >= plain
    if abs(v - old) < clip:
        assert clipped == pytest.approx(plain)


def test_a_value_that_moved_beyond_the_clip_is_not_pushed_on():
    value = torch.tensor([0.9], requires_grad=True)
    value_loss(value, torch.tensor([1.0]), torch.tensor([0.5]), 0.2).sum().backward()
    assert float(value.grad) == 0


def test_a_clip_without_old_values_is_an_error():
    with pytest.raises(InputError, match="old"):
        losses([0.9], [1.0], None, 0.2)
    rows = with_targets(sampled_rows(2))
    with pytest.raises(InputError, match="value_old"):
        learner_of(tiny(), critic=Critic(1e-2, clip=0.2)).update(rows, pg)
    with pytest.raises(InputError, match="value_old"):
        separate().update_values(rows, clip=0.2)


# ── what a value is ──────────────────────────────────────────────────────────


def critics(rows):
    yield learned(rows)
    one = separate()
    for _ in range(5):
        one.update_values(rows)
    yield one


def test_a_new_critic_expects_nothing():
    rows = sampled_rows(3)
    for critic in (learner_of(tiny(), critic=Critic(1e-2)), separate()):
        assert not flat(critic.values(rows)).any()
        assert not torch.tensor(critic.end_values(rows)).any()


def test_a_value_is_that_of_the_state_before_its_token():
    """It knows neither the token nor what comes after."""
    rows = with_targets(sampled_rows(4))
    row = Trained([1, 2, 3, 4, 5], [False, False, True, True, True])
    other = Trained([1, 2, 3, 9, 8, 7], [False, False, True, True, True, True])
    for critic in critics(rows):
        a, b = critic.values([row, other])
        assert a[:2] == pytest.approx(b[:2], abs=1e-5)
        assert a[2] != pytest.approx(b[2], abs=1e-5)


def test_the_value_at_the_end_is_that_before_whatever_would_follow():
    rows = with_targets(sampled_rows(4))
    whole = Trained([1, 2, 3, 4, 5, 6], [False, True, True, True, True, True])
    for critic in critics(rows):
        (values,) = critic.values([whole])
        ends = critic.end_values([Trained(whole.tokens[:n], whole.mask[:n]) for n in range(2, 6)])
        assert ends == pytest.approx(values[1:], abs=1e-5)


def test_values_depend_neither_on_the_order_of_rows_nor_on_micro_batches():
    rows = with_targets(sampled_rows(6))
    critic = separate(micro_tokens=10_000)
    critic.update_values(rows)
    small = separate(micro_tokens=20)
    small.restore(copy.deepcopy(critic.state()))
    for a, b in zip(critic.values(rows), small.values(rows[::-1])[::-1], strict=True):
        assert a == pytest.approx(b, abs=1e-5)


# ── a critic on the policy's trunk ───────────────────────────────────────────


def test_an_update_reports_the_fit_that_the_critic_had_before_it():
    rows = with_targets(sampled_rows(5))
    learner = learned(rows)
    values, targets = flat(learner.values(rows)), targets_of(rows)
    update = learner.update(rows, ppo)
    assert update.value_loss == pytest.approx(float(value_loss(values, targets).mean()), rel=1e-4)
    assert update.explained_variance == pytest.approx(explained_variance(values, targets), rel=1e-4)
    assert learner_of(tiny()).update(rows, ppo).explained_variance == 0


def test_only_tokens_with_a_target_are_regressed_on():
    rows = with_targets(sampled_rows(4))
    rows = [rows[0], *(replace(row, value_target=[NAN] * len(row.tokens)) for row in rows[1:])]
    alone, among = (learner_of(tiny(), critic=Critic(1e-2)) for _ in range(2))
    one, many = alone.update_values(rows[:1]), among.update_values(rows)
    assert (one.value_loss, one.tokens) == (many.value_loss, many.tokens)
    assert same(alone.state()["weights"], among.state()["weights"], 0.0)
    assert among.update(rows[1:], pg).value_loss == 0


@pytest.mark.parametrize("micro_tokens", [1, 40])
def test_micro_batches_change_no_gradient_of_a_shared_critic(micro_tokens):
    rows = with_targets(sampled_rows(6))
    state = copy.deepcopy(learned(rows).state())
    for part in ("exp_avg", "exp_avg_sq", "step"):
        state[part] = {}
    found = []
    for most in (10_000, micro_tokens):
        learner = learner_of(tiny(), critic=Critic(1e-2), micro_tokens=most)
        learner.restore(state)
        found.append(gradients(learner, rows, ppo))
    assert same(*found)


def test_only_a_shared_critic_reaches_the_trunk():
    rows = with_targets(sampled_rows(5))
    alone = gradients(learner_of(tiny()), rows, pg)
    apart = gradients(learned(rows, shared=False), rows, pg)
    shared = gradients(learned(rows, shared=True), rows, pg)
    assert same(alone, {name: apart[name] for name in alone}, 0.0)
    assert not same(alone, {name: shared[name] for name in alone}, 1e-3)


def test_fitting_the_head_alone_moves_nothing_of_the_policy():
    rows, network = with_targets(sampled_rows(5)), tiny()
    before = copy.deepcopy(network.state_dict())
    learner = learner_of(network, critic=Critic(0.05))
    losses = [learner.update_values(rows).value_loss for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    assert same(before, network.state_dict(), 0.0)
    assert learner.model.version == 0
    assert not any(name in learner.state()["exp_avg"] for name in before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_critic_goes_on_bit_for_bit(dtype):
    batches = [with_targets(sampled_rows(4, seed=i)) for i in range(4)]
    through = learner_of(tiny().to(dtype), critic=Critic(1e-2))
    for rows in batches[:2]:
        through.update(rows, ppo)
    saved = copy.deepcopy(through.state())
    resumed = learner_of(tiny(seed=9).to(dtype), critic=Critic(1e-2))
    resumed.restore(saved)
    for rows in batches[2:]:
        assert through.update(rows, ppo) == resumed.update(rows, ppo)
    for part, tensors in through.state().items():
        assert same(tensors, resumed.state()[part], 0.0)
    assert through.values(batches[0]) == resumed.values(batches[0])


def test_checkpoints_with_and_without_a_critic_can_be_exchanged():
    rows = with_targets(sampled_rows(3))
    plain, critical = learner_of(tiny()), learned(rows)
    plain.update(rows, pg)
    with_head = copy.deepcopy(critical.state())
    critical.restore(copy.deepcopy(plain.state()))
    assert not flat(critical.values(rows)).any()
    assert critical.logprobs(rows) == plain.logprobs(rows)
    plain.restore(with_head)
    assert not any(name.startswith("value_head") for name in plain.state()["weights"])


def test_without_a_critic_there_are_no_values():
    rows = with_targets(sampled_rows(2))
    for ask in ("values", "end_values", "update_values"):
        with pytest.raises(InputError, match="no critic"):
            getattr(learner_of(tiny()), ask)(rows)


def test_without_targets_a_critic_cannot_be_fitted():
    for critic in (learner_of(tiny(), critic=Critic(1e-2)), separate()):
        with pytest.raises(InputError, match="value_target"):
            critic.update_values(sampled_rows(2))


# ── a critic of its own ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "critic"),
    [
        (lambda: tiny(), lambda: tiny(layers=1, seed=4)),  # smaller than the policy
        (lambda: grouped(tied=False), None),  # a copy of it
        (lambda: tiny().to(torch.bfloat16), None),
    ],
)
def test_a_separate_critic_learns_without_touching_the_policy(policy, critic):
    network, rows = policy(), with_targets(sampled_rows(5))
    model = resident(network)
    finish(model.engine, [model.engine.submit([3, 4, 5], Sampling(1.0, 4), 0)])
    before = copy.deepcopy(network.state_dict())
    trained = {name: p.requires_grad for name, p in network.named_parameters()}
    one = separate(critic() if critic else network)
    updates = [one.update_values(rows) for _ in range(40)]
    assert updates[0].explained_variance == 0
    assert updates[-1].explained_variance > 0.8
    assert updates[-1].value_loss < 0.2 * updates[0].value_loss
    assert same(before, network.state_dict(), 0.0)
    assert trained == {name: p.requires_grad for name, p in network.named_parameters()}
    assert all(p.grad is None for p in network.parameters())


def test_little_memory_changes_no_update_of_a_separate_critic():
    rows = with_targets(sampled_rows(4))
    network = tiny()
    ample = SeparateCritic(network, Optimisation(1e-2))
    longest = max(len(row.tokens) for row in rows)
    little = ample.budget.needs.of(longest, recompute=True)
    scarce = SeparateCritic(network, Optimisation(1e-2, little))
    assert scarce.budget.recomputes(longest) and not ample.budget.recomputes(longest)
    wanted, found = ample.update_values(rows), scarce.update_values(rows)
    assert found.gradient_norm == pytest.approx(wanted.gradient_norm, rel=1e-5)
    too_little = ample.budget.needs.of(longest - 1, recompute=True)
    with pytest.raises(InputError, match=f"a row of {longest} tokens"):
        SeparateCritic(network, Optimisation(1e-2, too_little)).update_values(rows)


def test_a_restored_separate_critic_goes_on_bit_for_bit():
    batches = [with_targets(sampled_rows(4, seed=i)) for i in range(4)]
    through = separate()
    for rows in batches[:2]:
        through.update_values(rows)
    resumed = separate(tiny(seed=9))
    resumed.restore(copy.deepcopy(through.state()))
    for rows in batches[2:]:
        assert through.update_values(rows) == resumed.update_values(rows)
    assert through.values(batches[0]) == resumed.values(batches[0])


# ── what is explained ────────────────────────────────────────────────────────


def test_a_critic_that_knows_nothing_explains_nothing_and_a_perfect_one_all():
    """The case of UI-TARS-2's chunks: V = 0 everywhere, r = [0, 0, 1]."""
    targets = torch.tensor(discounted([0, 0, 1], 1.0))
    assert targets.tolist() == [1, 1, 1]
    varying = torch.tensor([1.0, 0.0, 0.5, 0.0])
    assert explained_variance(torch.zeros(4), varying) == 0
    assert explained_variance(varying, varying) == 1
    assert explained_variance(torch.zeros(3), targets) == 0  # nothing varies
