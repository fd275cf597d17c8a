"""Choosing by scores: the published numbers, fixed ties, and a value model worth asking."""

import math
import random
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.learning.critics.agent_rm import (
    ValueModel,
    beam,
    best_of,
    node_value_loss,
    value_targets,
)
from palaestra.learning.critics.step_q import Node
from tests.learning.critics.rollouts import equal_states, small

scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=6)


# ── regression ───────────────────────────────────────────────────────────────


def test_targets_are_the_means_of_what_followed():
    leaves = [Node(1, (1.0,)), Node(1, (0.0,)), Node(2, (1.0,)), Node(2, (1.0,))]
    found = value_targets([Node(None), Node(0), Node(0), *leaves, Node(0)])
    assert found[:3] == [(0, 0.75), (1, 0.5), (2, 1.0)]
    assert len(found) == 7  # the node without a visit has no target


def test_the_error_is_the_published_number():
    loss = node_value_loss(torch.tensor([0.6, 0.8, 0.7]), torch.tensor([0.5, 1.0, 0.75]))
    assert loss.mean().item() == pytest.approx(0.0175, abs=1e-6)


# ── decisions ────────────────────────────────────────────────────────────────


def test_the_first_of_equal_attempts_is_kept():
    assert best_of([0.2, 0.9, 0.9]) == 1


@pytest.mark.parametrize("bad", [[], [0.1, math.nan], [math.nan]])
def test_no_choice_without_numbers(bad):
    with pytest.raises(InputError, match="NaN"):
        best_of(bad)
    with pytest.raises(InputError, match="NaN"):
        beam([bad], 1)


def test_a_beam_keeps_the_best_continuations_of_any_state():
    assert beam([[0.1, 0.7], [0.9], [0.7, 0.2]], 3) == [(1, 0), (0, 1), (2, 0)]


@given(st.lists(scores, min_size=1, max_size=4), st.integers(1, 30))
def test_nothing_left_out_of_a_beam_is_better_than_what_is_kept(found, width):
    kept = beam(found, width)
    everything = {(i, j): s for i, of in enumerate(found) for j, s in enumerate(of)}
    assert len(set(kept)) == len(kept) == min(width, len(everything))
    left = [s for place, s in everything.items() if place not in kept]
    assert max(left, default=-1.0) <= min(everything[place] for place in kept)


@given(scores)
def test_a_beam_of_one_is_the_best_of_all(found):
    assert beam([found], 1) == [(0, best_of(found))]


def test_a_beam_has_room_for_something():
    with pytest.raises(InputError, match="1 or more"):
        beam([[0.5]], 0)


# ── the value model ──────────────────────────────────────────────────────────


def attempts(count, seed):
    """Five words each; the share of the word 5 is what the attempt is worth."""
    draw = random.Random(seed)
    found = [tuple(draw.choice((4, 5)) for _ in range(5)) for _ in range(count)]
    return found, [fmean(word == 5 for word in words) for words in found]


def test_best_of_five_by_the_model_beats_chance_on_unseen_attempts():
    states, worth = attempts(24, seed=1)
    model = ValueModel(small(), seed=0, learning_rate=3e-3)
    losses = model.learn(states, worth, 150)
    assert losses[-1] < 0.02 < losses[0]
    unseen = [attempts(5, seed) for seed in range(100, 140)]
    chosen = fmean(truth[best_of(model.scores(five))] for five, truth in unseen)
    highest = fmean(max(truth) for _, truth in unseen)
    assert chosen > fmean(fmean(truth) for _, truth in unseen) + 0.15
    assert chosen > highest - 0.1


def test_a_restored_model_goes_on_exactly():
    states, worth = attempts(8, seed=1)
    model, other = (ValueModel(small(seed=i), seed=7, batch=3) for i in (0, 1))
    model.learn(states, worth, 3)
    other.restore(model.state())
    for each in (model, other):
        each.learn(states, worth, 2)
    assert equal_states(model.state(), other.state())
    with pytest.raises(ValueError, match="zip"):
        model.learn(states, worth[1:], 1)
