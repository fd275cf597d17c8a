"""Reward models: losses as published, and models that tell good rollouts from bad ones."""

from __future__ import annotations

import math

import pytest
import torch

from palaestra.learning.critics.reward_model import (
    Judged,
    RewardModel,
    preference_loss,
    success_loss,
)
from tests.learning.made import tiny


def test_the_loss_of_a_prediction_is_its_cross_entropy() -> None:
    found = success_loss(torch.tensor([0.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 0.0]))
    p = 1 / (1 + math.exp(-2))
    assert found.tolist() == pytest.approx([math.log(2), -math.log(p), -math.log(1 - p)])


def test_the_loss_of_a_preference_is_bradley_and_terrys() -> None:
    found = preference_loss(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    p = 1 / (1 + math.exp(-1))
    assert found.tolist() == pytest.approx([-math.log(p), -math.log(1 - p)])


def rollouts() -> list[Judged]:
    """Those in which the word 5 is said succeed."""
    found = []
    for number in range(16):
        word = 5 if number % 2 else 6
        replies = ([1, 3 + number % 4, word], [1, 3 + number % 4, word, 2, 7 + number % 3])
        found.append(Judged(replies, float(word == 5)))
    return found


def test_a_success_predictor_learns_which_rollouts_succeed_at_every_turn() -> None:
    model = RewardModel(tiny(), seed=0, learning_rate=3e-3, batch=8)
    losses = [model.learn_success(rollouts()) for _ in range(30)]
    assert losses[-1] < 0.2 < 0.5 < losses[0]
    for one in rollouts():
        for reply in one.replies:
            (logit,) = model.scores([reply])
            assert (logit > 0) == bool(one.success)


def test_a_preference_model_ranks_and_its_state_is_all_of_it() -> None:
    pairs = [
        (good.replies[-1], bad.replies[-1])
        for good in rollouts()
        for bad in rollouts()
        if good.success > bad.success
    ]
    model = RewardModel(tiny(), seed=0, learning_rate=3e-3, batch=8)
    for _ in range(20):
        model.learn_preferences(pairs)
    again = RewardModel(tiny(seed=1), seed=1, learning_rate=3e-3, batch=8)
    again.restore(model.state())
    for good, bad in pairs:
        better, worse = model.scores([good, bad])
        assert better > worse
        assert again.scores([good, bad]) == [better, worse]
