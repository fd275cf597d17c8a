"""Step-level Q: values backed up a tree, pairs read off it, and a model that learns them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.learning.critics.step_q import (
    Node,
    NodeValue,
    Pair,
    Preference,
    StepQ,
    choose,
    log_likelihoods,
    node_values,
    preference_pairs,
    select,
)
from palaestra.learning.losses.preference import implicit_reward, step_dpo
from tests.learning.critics.rollouts import equal_states, small

TREE = [
    Node(None),
    Node(0, (1.0, 1.0)),
    Node(0, (0.0,)),
    Node(1, (1.0,)),
    Node(1, (0.0,)),
    Node(1),  # never visited
]


@st.composite
def trees(draw):
    """Up to a dozen nodes under random parents, with returns here and there."""
    nodes = [Node(None, (draw(st.floats(0, 1)),))]
    for number in range(1, draw(st.integers(1, 12))):
        returns = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=3))
        nodes.append(Node(draw(st.integers(0, number - 1)), tuple(returns)))
    return nodes


# ── trees ────────────────────────────────────────────────────────────────────


def test_means_are_backed_up_to_the_root():
    leaves = [Node(1, (1.0,)), Node(1, (0.0,)), Node(2, (1.0,)), Node(2, (1.0,))]
    root, left, right, *_ = node_values([Node(None), Node(0), Node(0), *leaves])
    assert (left.value, right.value, root.value) == (0.5, 1.0, 0.75)
    assert (left.visits, right.visits, root.visits) == (2, 2, 4)


def test_a_branch_visited_more_often_weighs_more():
    root, *_ = node_values([Node(None), Node(0, (1.0, 1.0, 1.0)), Node(0, (0.0,))])
    assert root.value == 0.75


@given(trees())
def test_the_root_is_the_mean_of_all_rollouts(tree):
    returns = [r for node in tree for r in node.returns]
    root, *_ = node_values(tree)
    assert root.visits == len(returns)
    assert root.value == pytest.approx(sum(returns) / len(returns))


@pytest.mark.parametrize(
    "tree",
    [
        [],
        [Node(0)],
        [Node(None), Node(None)],
        [Node(None), Node(2), Node(0)],
        [Node(None), Node(-1)],
    ],
)
def test_a_tree_out_of_order_is_refused(tree):
    with pytest.raises(InputError, match=r"[Rr]oot|root first|parent"):
        node_values(tree)


# ── selection ────────────────────────────────────────────────────────────────


def test_what_was_never_tried_is_tried_first():
    unvisited = NodeValue(0, math.nan)
    assert select([NodeValue(3, 1.0), unvisited, unvisited], 3) == 1


@pytest.mark.parametrize(("c", "expected"), [(1.0, 0), (0.1, 1), (0.0, 1)])
def test_a_large_constant_prefers_what_was_tried_less(c, expected):
    # c = 1: 0.5 + sqrt(ln 10 / 1) = 2.017 against 0.8 + sqrt(ln 10 / 9) = 1.306
    assert select([NodeValue(1, 0.5), NodeValue(9, 0.8)], 10, c=c) == expected


def test_equal_bounds_go_to_the_first_child():
    assert select([NodeValue(2, 0.5), NodeValue(2, 0.5)], 4) == 0
    with pytest.raises(InputError, match="expand"):
        select([], 1)


# ── pairs ────────────────────────────────────────────────────────────────────


def test_pairs_are_the_best_and_the_worst_action_along_the_best_path():
    assert preference_pairs(TREE) == [Pair(0, 1, 2, 0.75), Pair(1, 3, 4, 1.0)]


def test_a_gap_within_the_margin_gives_no_pair():
    assert preference_pairs(TREE, margin=0.75) == [Pair(1, 3, 4, 1.0)]
    assert preference_pairs(TREE, margin=1.0) == []


def test_equal_actions_and_single_ones_give_no_pair():
    assert preference_pairs([Node(None), Node(0, (1.0,)), Node(0, (1.0,))]) == []
    assert preference_pairs([Node(None), Node(0, (1.0,))]) == []
    assert preference_pairs([Node(None, (1.0,))]) == []


@given(trees(), st.floats(0, 0.5))
def test_the_chosen_action_is_better_by_more_than_the_margin(tree, margin):
    values = node_values(tree)
    for pair in preference_pairs(tree, margin=margin):
        assert tree[pair.chosen].parent == tree[pair.rejected].parent == pair.state
        gap = values[pair.chosen].value - values[pair.rejected].value
        assert gap == pair.gap > margin


# ── scores ───────────────────────────────────────────────────────────────────


def test_scores_and_loss_are_the_published_numbers():
    lp, ref = torch.tensor([0.0, -2.0]), torch.tensor([-1.0, -1.5])
    scores = implicit_reward(lp, ref, beta=0.1)
    assert scores.tolist() == pytest.approx([0.10, -0.05])
    assert (scores[0] - scores[1]).item() == pytest.approx(0.15)
    assert step_dpo(*lp, *ref, beta=0.1).item() == pytest.approx(0.6210, abs=5e-5)


def test_the_action_taken_has_the_highest_ratio_to_the_reference_and_comes_first():
    lp, ref = torch.tensor([-1.0, -9.0, -5.0]), torch.tensor([-1.0, -11.0, -7.0])
    assert choose(lp, ref) == 1


@torch.no_grad()
def test_the_likelihoods_of_all_single_tokens_sum_to_one():
    network = small(vocabulary=12)
    lp = log_likelihoods(network, [((3, 4), (token,)) for token in range(12)])
    assert lp.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


@torch.no_grad()
def test_the_likelihood_of_an_action_is_the_product_over_its_tokens():
    network = small()
    both = log_likelihoods(network, [((3,), (4, 5)), ((3,), (4,)), ((3, 4), (5,))])
    assert both[0].item() == pytest.approx((both[1] + both[2]).item(), abs=1e-5)


# ── learning ─────────────────────────────────────────────────────────────────


def pairs():
    """After word h, action 4 + h is better than action 4 + (h + 1) % 4."""
    return [Preference((h,), (4 + h, 8), (4 + (h + 1) % 4, 8)) for h in range(4)]


def test_a_trained_model_ranks_the_better_action_first():
    model = StepQ(small(), seed=0, beta=1.0, learning_rate=3e-3)
    losses = model.learn(pairs(), 80)
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)  # it begins as its own reference
    assert losses[-1] < 0.2
    actions = [(4 + a, 8) for a in range(4)]
    for pair in pairs():
        scores = model.scores(pair.history, actions)
        assert actions[scores.index(max(scores))] == pair.chosen


def test_a_restored_model_goes_on_exactly():
    model, other = (StepQ(small(seed=i), seed=7, batch=2) for i in (0, 1))
    model.learn(pairs(), 3)
    other.restore(model.state())
    for each in (model, other):
        each.learn(pairs(), 2)
    assert equal_states(model.state(), other.state())
    assert other.scores((0,), [(4, 8)]) == model.scores((0,), [(4, 8)])
