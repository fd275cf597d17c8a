"""The progress estimator: contributions that sum to the return, and stand where it was earned."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.learning.critics.progress_estimator import (
    ProgressEstimator,
    ProgressPlan,
    return_loss,
)
from palaestra.learning.data.trajectory import with_turns_filled
from tests.learning.critics.rollouts import equal_states, rollouts, small

KEY = 4  # the word that earns something
OTHERS = (5, 6, 7)


def delayed(count, seed):
    """Up to five turns; each reply that ends in KEY adds 1 to a reward that comes at the end.

    Returns:
        the rollouts, and what each turn truly contributed.
    """
    draw = random.Random(seed)
    episodes, truth = [], []
    for _ in range(count):
        words = [
            KEY if draw.random() < 0.4 else draw.choice(OTHERS) for _ in range(draw.randint(1, 5))
        ]
        earned = [float(word == KEY) for word in words]
        truth.append(earned)
        episodes.append(
            [
                (
                    [draw.choice((0, 1))],
                    [draw.choice((2, 3)), word],
                    sum(earned) if last else 0.0,
                )
                for word, last in zip(words, [False] * (len(words) - 1) + [True], strict=True)
            ]
        )
    return rollouts(episodes), truth


def correlation(found, truth):
    flat = torch.tensor([[n for turns in each for n in turns] for each in (found, truth)])
    return torch.corrcoef(flat)[0, 1].item()


def test_the_sum_is_held_to_the_return():
    loss = return_loss(
        torch.tensor([0.1, 0.5, 0.3]), torch.zeros(3, dtype=torch.int64), torch.tensor([1.0])
    )
    assert loss.item() == pytest.approx(0.0100, abs=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.data())
def test_moving_progress_between_turns_changes_no_loss(numbers, data):
    found = torch.tensor(numbers, dtype=torch.float64)
    owner, returns = torch.zeros(len(numbers), dtype=torch.int64), found.new_ones(1)
    order = data.draw(st.permutations(range(len(numbers))))
    assert return_loss(found[order], owner, returns).item() == pytest.approx(
        return_loss(found, owner, returns).item()
    )


def test_each_trajectory_is_judged_by_its_own_turns():
    loss = return_loss(
        torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 1]), torch.tensor([0.0, 4.0, 5.0])
    )
    assert loss.tolist() == [4.0, 0.0, 25.0]


def test_contributions_stand_where_the_delayed_reward_was_earned():
    made, _ = delayed(64, seed=1)
    estimator = ProgressEstimator(small(), ProgressPlan(16, learning_rate=3e-3), seed=0)
    losses = estimator.learn(made.trajectories, made.rows, 200)
    unseen, truth = delayed(40, seed=2)
    found = estimator.contributions(unseen.trajectories, unseen.rows)
    assert correlation(found, truth) > 0.9
    errors = [
        (sum(turns) - t.total) ** 2 for turns, t in zip(found, unseen.trajectories, strict=True)
    ]
    assert sum(errors) / len(errors) < 0.2 < losses[0]


def test_contributions_fill_the_slot_that_credit_rules_read():
    made, truth = delayed(3, seed=1)
    filled = with_turns_filled(made.trajectories, "contribution", truth)
    assert [[turn.contribution for turn in t.turns] for t in filled] == truth
    assert [t.total for t in filled] == [t.total for t in made.trajectories]
    with pytest.raises(ValueError, match="zip"):
        with_turns_filled(made.trajectories, "contribution", truth[1:])


def test_trajectories_per_pass_change_no_gradient():
    made, _ = delayed(8, seed=1)
    moments = []
    for at_once in (1, 3, 100):
        estimator = ProgressEstimator(small(), ProgressPlan(at_once=at_once), seed=0)
        estimator.learn(made.trajectories, made.rows, 1)
        moments.append(estimator.state()["exp_avg"])
    for other in moments[1:]:
        assert all(torch.allclose(other[n], moments[0][n], atol=1e-6) for n in other)


def test_a_restored_estimator_goes_on_exactly():
    made, _ = delayed(8, seed=1)
    one, other = (ProgressEstimator(small(seed=i), ProgressPlan(4), seed=7) for i in (0, 1))
    one.learn(made.trajectories, made.rows, 3)
    other.restore(one.state())
    for each in (one, other):
        each.learn(made.trajectories, made.rows, 2)
    assert equal_states(one.state(), other.state())
