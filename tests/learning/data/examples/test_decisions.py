"""Decisions and pairs: the tree in the episodes, and what is preferred in it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.decisions import decisions, on_best_path, thresholded
from palaestra.learning.data.examples.pairs import (
    anchor_pairs,
    extremes,
    sibling_pairs,
    threshold_pairs,
    trajectory_pairs,
)
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, find
from tests.learning.data.examples.stories import BROKEN, Turn, story, trained_words, words
from tests.learning.made import call, episode

SUCCESS, FAILURE = Outcome.success(), Outcome.failure()


def ended(value):
    return SUCCESS if value else FAILURE


def leaves(values):
    """A tree of depth two: child c of the root, its leaves, each with a value of 0 or 1."""
    return [
        story([("s0", f"a{c}"), (f"s{c + 1}", f"b{n}")], member=2 * c + n, outcome=ended(value))
        for c, each in enumerate(values)
        for n, value in enumerate(each)
    ]


def test_a_nodes_value_is_the_mean_outcome_below_it():
    root, *below = decisions(leaves([[1, 0], [1, 1]]), "policy")
    assert [option.value for option in root.options] == [0.5, 1.0]
    assert root.value == 0.75
    assert [decision.value for decision in below] == [0.5, 1.0]
    targets = torch.tensor([0.5, 1.0, 0.75]), torch.tensor([0.6, 0.8, 0.7])
    values = torch.tensor([*[option.value for option in root.options], root.value])
    assert torch.equal(values, targets[0])
    assert float(torch.nn.functional.mse_loss(targets[1], values)) == pytest.approx(0.0175)


def test_equal_replies_to_one_history_are_one_option():
    made = [story([("s0", "a0")], member=n, outcome=ended(n)) for n in range(2)]
    (decision,) = decisions(made, "policy")
    (option,) = decision.options
    assert option.scores == [0.0, 1.0]


def test_other_tasks_and_errors_are_kept_apart():
    made = [
        story([("s0", "a0")], group=0),
        story([("s0", "a0")], group=1, outcome=FAILURE),
        story([("s0", "a0")], group=0, member=1, outcome=BROKEN),
    ]
    assert [decision.value for decision in decisions(made, "policy")] == [1.0, 0.0]


def test_the_best_path_follows_the_best_option():
    made = leaves([[1, 0], [1, 1], [0, 0]])
    found = decisions(made, "policy")
    assert len(found) == 4
    path = on_best_path(found, made, "policy")
    assert path == [found[0], found[2]]
    assert trained_words(path[0].best.row) == "a1"


# ── MALT ─────────────────────────────────────────────────────────────────────


def malt():
    """Two generations, two verifications each, two refinements each: eight leaves."""
    outcomes = [[1, 0], [0, 0], [1, 1], [1, 0]]
    return [
        episode(
            [
                call(0, None, [1, 5], [10 + v // 2, 0], policy="generator"),
                call(1, None, [1, 10 + v // 2, 6], [20 + v, 0], policy="verifier"),
                call(2, None, [1, 20 + v, 7], [30 + 2 * v + r, 0], policy="refiner"),
            ],
            member=2 * v + r,
            outcome=ended(outcomes[v][r]),
        )
        for v in range(4)
        for r in range(2)
    ]


def test_values_go_up_the_tree_as_in_malt():
    made = malt()
    verifiers = [o.value for d in decisions(made, "verifier") for o in d.options]
    generators = [o.value for d in decisions(made, "generator") for o in d.options]
    assert verifiers == [0.5, 0, 1, 0.5]
    assert generators == [0.25, 0.75]


def first_token(row):
    return next(token for token, on in zip(row.tokens, row.mask, strict=True) if on)


def test_a_value_of_exactly_the_threshold_is_negative():
    made = malt()
    assert [first_token(e.row) for e in thresholded(made, "generator")] == [11]
    assert [first_token(e.row) for e in thresholded(made, "verifier")] == [22]
    assert [first_token(e.row) for e in thresholded(made, "refiner")] == [30, 34, 35, 36]


def test_positive_and_negative_siblings_of_one_input_are_paired():
    made = malt()

    def pairs(role):
        return [
            (first_token(pair.chosen[0]), first_token(pair.rejected[0]))
            for pair in threshold_pairs(made, role)
        ]

    assert pairs("generator") == [(11, 10)]
    assert pairs("verifier") == [(22, 23)]
    assert pairs("refiner") == [(30, 31), (36, 37)]


def test_thresholded_examples_need_attempts_at_one_task():
    part = find(Kind.EXAMPLES, f"{thresholded.__module__}:thresholded")
    assert part.needs == {Need.ATTEMPT}


# ── pairs ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scores", "gap", "expected"),
    [
        ([0.2, 0.8, 0.8], 0.0, (1, 0)),
        ([0.5, 0.5, 0.5], 0.0, None),
        ([0.2, 0.8, 0.8], 0.7, None),
        ([], 0.0, None),
    ],
)
def test_the_best_and_the_worst_are_paired_where_they_differ(scores, gap, expected):
    assert extremes(scores, gap=gap) == expected


def test_meta_plans_are_paired_by_the_agents_mean_score():
    plans = {"a0": [1, 0, 0, 0, 0], "a1": [1, 1, 1, 1, 0], "a2": [0, 1, 1, 1, 1]}
    made = [
        story([("s0", plan)], policy="planner", member=5 * p + n, outcome=ended(value))
        for p, (plan, values) in enumerate(plans.items())
        for n, value in enumerate(values)
    ]
    (pair,) = sibling_pairs(made, "planner")
    assert (trained_words(pair.chosen[0]), trained_words(pair.rejected[0])) == ("a1", "a0")
    assert pair.margin == pytest.approx(0.6)
    assert sibling_pairs(made, "planner", gap=0.65) == []


def test_step_pairs_compare_replies_to_one_history():
    made = leaves([[1, 0], [1, 1], [0, 0]])
    found = [(words(p.chosen[0]), words(p.rejected[0])) for p in sibling_pairs(made, "policy")]
    assert found == [("s0 a1", "s0 a2"), ("s0 a0 s1 b0", "s0 a0 s1 b1")]
    best = sibling_pairs(made, "policy", best_path=True)
    assert [words(pair.chosen[0]) for pair in best] == ["s0 a1"]
    for pair in best:
        assert trained_words(pair.chosen[0]) == "a1"  # the history is context in both
        assert trained_words(pair.rejected[0]) == "a2"


def test_rollouts_of_a_group_are_paired_once_each():
    made = [story([("s0", f"a{n}")], member=n, outcome=ended(n % 2)) for n in range(5)]
    found = trajectory_pairs(made, "policy")
    pairs = [(trained_words(pair.chosen[0]), trained_words(pair.rejected[0])) for pair in found]
    assert pairs == [("a1", "a4"), ("a3", "a2")]
    assert [pair.margin for pair in found] == [1, 1]


def test_rollouts_of_different_groups_or_without_result_are_not_paired():
    apart = [story([("s0", "a0")]), story([("s0", "a1")], group=1, outcome=FAILURE)]
    faulty = [story([("s0", "a0")]), story([("s0", "a1")], member=1, outcome=BROKEN)]
    assert trajectory_pairs(apart, "policy") == trajectory_pairs(faulty, "policy") == []


@given(st.lists(st.integers(0, 3), max_size=8), st.randoms(use_true_random=False))
def test_pairs_do_not_depend_on_the_order_of_the_rollouts(scores, chance):
    made = [story([("s0", f"a{n % 6}")], member=n) for n in range(len(scores))]
    shuffled = list(made)
    chance.shuffle(shuffled)

    def pairs(episodes):
        return trajectory_pairs(episodes, "policy", score=lambda e: scores[e.key.member])

    assert pairs(shuffled) == pairs(made)
    for pair in pairs(made):
        assert scores[pair.chosen[0].key.member] > scores[pair.rejected[0].key.member]


def test_a_rollout_of_many_rows_is_one_response():
    made = [
        story([("s0", "a0"), ("s1", f"b{n}")], member=n, rooted=True, outcome=ended(n))
        for n in range(2)
    ]
    (pair,) = trajectory_pairs(made, "policy")
    assert list(pair.chosen) == rows_of(made[1], "policy")
    assert len(pair.chosen) == 2


# ── anchors ──────────────────────────────────────────────────────────────────


def meeting():
    """Two rollouts that reach state s3 by different paths and act differently there."""
    return [
        story([("s0", "a0"), ("s3", "g0")], member=0),
        story([("s0", "a1"), ("s2", "a2"), ("s3", "b0")], member=1, outcome=FAILURE),
    ]


def test_replies_in_one_state_are_compared_after_the_same_history():
    first, second = anchor_pairs(meeting(), "policy")
    assert (words(first.chosen[0]), words(first.rejected[0])) == ("s0 a0", "s0 a1")
    assert (words(second.chosen[0]), words(second.rejected[0])) == ("s0 a0 s3 g0", "s0 a0 s3 b0")
    assert (trained_words(second.chosen[0]), trained_words(second.rejected[0])) == ("g0", "b0")
    assert second.rejected[0].key == meeting()[1].key


def test_an_actions_value_is_the_mean_over_all_who_took_it():
    made = [
        story([("s0", "a0")], member=0),
        story([("s0", "a0")], member=1, outcome=FAILURE),
        story([("s0", "a1")], member=2, outcome=FAILURE),
    ]
    (pair,) = anchor_pairs(made, "policy")
    assert pair.margin == 0.5
    assert anchor_pairs(made, "policy", gap=0.5) == []


def test_equal_actions_equal_outcomes_and_unknown_states_give_no_pairs():
    same = [story([("s0", "a0")], member=n, outcome=ended(n)) for n in range(2)]
    tied = [story([("s0", f"a{n}")], member=n) for n in range(2)]
    thoughts = [
        story([Turn("s0", f"t{n}", acts=False)], member=n, outcome=ended(n)) for n in range(2)
    ]
    for made in (same, tied, thoughts):
        assert anchor_pairs(made, "policy") == []
