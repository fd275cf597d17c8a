"""ILQL: the published numbers, and stitching together what no one trajectory shows."""

import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.learning.critics.encoder import replies
from palaestra.learning.critics.ilql import (
    Ilql,
    IlqlPlan,
    TokenChain,
    expectile_loss,
    ilql_loss,
    imitation_weights,
    steered_logits,
    temporal_difference_loss,
)
from tests.learning.critics.rollouts import equal_states, rollouts, small

START, MIDDLE, ELSEWHERE, LEFT, RIGHT, END = range(6)
VOCABULARY = 6
numbers = st.floats(-5, 5)


def scalar(number):
    return torch.tensor([number], dtype=torch.float64)


# ── losses ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("target", "expected"), [(0.6, 0.0140), (0.1, 0.0135)])
def test_the_expectile_weighs_what_lies_above_the_value_more(target, expected):
    assert expectile_loss(scalar(target), scalar(0.4), tau=0.7).item() == pytest.approx(expected)


@given(numbers, numbers)
def test_the_middle_expectile_is_half_of_half_the_square(target, value):
    found = expectile_loss(scalar(target), scalar(value), tau=0.5).item()
    assert found == pytest.approx(0.25 * (target - value) ** 2)


def test_the_temporal_difference_of_q():
    found = temporal_difference_loss(scalar(0.5), scalar(0.0), scalar(0.6), gamma=0.99)
    assert found.item() == pytest.approx(0.004418, abs=5e-7)


def test_the_loss_adds_both_heads_the_value_and_the_hold():
    q = torch.tensor([[[0.5, 0.0]], [[0.5, 0.0]]], dtype=torch.float64)
    found = ilql_loss(
        q,
        torch.tensor([[0.6], [0.9]], dtype=torch.float64),
        scalar(0.4),
        scalar(0.6),
        torch.tensor([0]),
        scalar(0.0),
        gamma=0.99,
        tau=0.7,
        conservative=0.01,
    )
    hold = math.log(1 + math.exp(-0.5))
    assert found.item() == pytest.approx(2 * 0.004418 + 0.0140 + 0.01 * 2 * hold)


def test_no_gradient_flows_into_targets():
    tensors = {n: scalar(0.3).requires_grad_() for n in ("target", "v", "next_v")}
    q = torch.zeros(2, 1, 3, dtype=torch.float64, requires_grad=True)
    ilql_loss(
        q,
        tensors["target"].expand(2, 1),
        tensors["v"],
        tensors["next_v"],
        torch.tensor([1]),
        scalar(1.0),
    ).backward()
    assert tensors["target"].grad is None and tensors["next_v"].grad is None
    assert tensors["v"].grad is not None and q.grad is not None


def test_the_hold_lowers_tokens_that_the_data_never_shows():
    q = torch.zeros(2, 1, 3, dtype=torch.float64, requires_grad=True)
    ilql_loss(
        q, scalar(0.0).expand(2, 1), scalar(0.0), scalar(0.0), torch.tensor([1]), scalar(0.0)
    ).backward()
    assert (q.grad[:, 0, 1] < 0).all() and (q.grad[:, 0, [0, 2]] > 0).all()


@pytest.mark.parametrize(("beta", "expected"), [(1.0, 0.5498), (4.0, 0.6900), (0.0, 0.5)])
def test_decoding_prefers_the_better_of_two_equal_tokens(beta, expected):
    q = torch.tensor([[0.7, 0.5], [0.9, 0.6]])  # the lesser head counts
    logits = steered_logits(torch.tensor([0.5, 0.5]).log(), q, torch.tensor(0.6), beta=beta)
    assert logits.softmax(-1)[0].item() == pytest.approx(expected, abs=5e-5)


def test_decoding_never_says_what_the_policy_never_would():
    logprobs = torch.tensor([0.0, -math.inf])
    q = torch.tensor([[0.0, 100.0], [0.0, 100.0]])
    p = steered_logits(logprobs, q, torch.tensor(0.0), beta=32.0).softmax(-1)
    assert p.tolist() == [1.0, 0.0]


@given(st.lists(numbers, min_size=1), st.floats(0, 10))
def test_better_tokens_weigh_more_and_none_without_limit(advantages, beta):
    found = imitation_weights(torch.tensor(advantages), beta=beta, most=100.0)
    order = sorted(range(len(advantages)), key=advantages.__getitem__)
    assert bool((found[order].diff() >= 0).all())
    assert found.min() >= 0 and found.max() <= 100.0
    assert bool((imitation_weights(torch.tensor(advantages), beta=0.0) == 1.0).all())


def test_a_weight_is_the_exponential_of_the_advantage():
    found = imitation_weights(torch.tensor([0.2, -0.2]), beta=5.0)
    assert found.tolist() == pytest.approx([math.e, 1 / math.e])


# ── the token process ────────────────────────────────────────────────────────


@pytest.mark.parametrize("truncated", [False, True])
def test_the_next_state_is_where_the_policy_speaks_next(truncated):
    made = rollouts([[([0, 1], [2, 3], 0.5), ([4, 4, 4], [5], 1.0)]], truncated=truncated)
    chain = TokenChain()
    (replied,) = replies(made.trajectories, made.rows)
    chain.add(made.trajectories[0], replied)
    chain.add(made.trajectories[0], replied)
    assert [list(p) for p in chain.positions] == [[1, 2, 3], [6, 7]] * 2
    assert chain.acting == [0, 1, 3, 5, 6, 8]
    assert chain.following == [1, 3, 4, 6, 8, 9]
    assert chain.actions == [2, 3, 5] * 2
    assert chain.rewards == [0.0, 0.5, 1.0] * 2
    assert chain.done == [False, False, not truncated] * 2


def maze():
    """From START, LEFT leads to MIDDLE; from there only RIGHT earns anything.

    No trajectory from START earns anything: those that reach MIDDLE turn LEFT there. Those
    that turn RIGHT there came from ELSEWHERE, and are few.
    """
    lost = [([START], [LEFT, END], 0.0), ([MIDDLE], [LEFT, END], 0.0)]
    left_out = [([START], [RIGHT, END], 0.0)]
    solved = [([ELSEWHERE], [LEFT, END], 0.0), ([MIDDLE], [RIGHT, END], 1.0)]
    return rollouts([lost] * 8 + [left_out] * 8 + [solved] * 2, forgetful=True)


def cloned(made):
    """Behaviour cloning at its optimum: log-probabilities as the data's frequencies."""
    counts = defaultdict(Counter)
    for turns in replies(made.trajectories, made.rows):
        for reply in turns:
            for at, token in enumerate(reply.tokens):
                counts[reply.history + reply.tokens[:at]][token] += 1

    def logprobs(history):
        seen = torch.tensor([float(counts[history][token]) for token in range(VOCABULARY)])
        return (seen / seen.sum()).log()

    return logprobs


def success(logits):
    """The exact probability of reaching the end of the maze from START."""
    chance = 1.0
    for state, reply in ((START, (LEFT, END)), (MIDDLE, (RIGHT, END))):
        for at, token in enumerate(reply):
            chance *= logits((state, *reply[:at])).softmax(-1)[token].item()
    return chance


@pytest.mark.slow
def test_decoding_with_values_stitches_what_behaviour_cloning_cannot():
    made = maze()
    behaviour = cloned(made)
    plan = IlqlPlan(polyak=0.1, learning_rate=3e-3)
    critic = Ilql(small(vocabulary=VOCABULARY), plan, seed=0)
    losses = list(critic.learn(made.trajectories, made.rows, 300))

    def steered(history):
        q, v = critic.values([history])
        return steered_logits(behaviour(history), q[:, 0], v[0], beta=16.0)

    assert success(behaviour) == pytest.approx(0.1)
    assert success(steered) > 0.9
    assert losses[-1] < losses[0] / 2


def test_weighing_the_data_by_advantages_stitches_too():
    made = maze()
    plan = IlqlPlan(polyak=0.1, learning_rate=3e-3)
    critic = Ilql(small(vocabulary=VOCABULARY), plan, seed=0)
    list(critic.learn(made.trajectories, made.rows, 300))
    weights = defaultdict(Counter)  # cloning at its optimum: the weighted frequencies
    for row, found in zip(made.rows, critic.advantages(made.rows), strict=True):
        factors = iter(imitation_weights(found, beta=16.0).tolist())
        for at, on in enumerate(row.mask):
            if on:
                weights[tuple(row.tokens[:at])][row.tokens[at]] += next(factors)

    def weighted(history):
        seen = torch.tensor([float(weights[history][token]) for token in range(VOCABULARY)])
        return (seen / seen.sum()).log()

    assert success(cloned(made)) == pytest.approx(0.1)
    assert success(weighted) > 0.9


def test_trajectories_per_pass_change_no_gradient():
    made, moments = maze(), []
    for at_once in (1, 5, 100):
        critic = Ilql(small(vocabulary=VOCABULARY), IlqlPlan(at_once=at_once), seed=0)
        list(critic.learn(made.trajectories, made.rows, 1))
        moments.append(critic.state()["exp_avg"])
    for other in moments[1:]:
        assert all(torch.allclose(other[n], moments[0][n], atol=1e-6) for n in other)


def test_a_restored_critic_goes_on_exactly():
    made, plan = maze(), IlqlPlan(batch=4)
    critic, other = (Ilql(small(vocabulary=VOCABULARY, seed=i), plan, seed=7) for i in (0, 1))
    list(critic.learn(made.trajectories, made.rows, 3))
    other.restore(critic.state())
    for each in (critic, other):
        list(each.learn(made.trajectories, made.rows, 2))
    assert equal_states(critic.state(), other.state())
