"""Comparisons: the figures of rules that are known by hand, and laws that hold for all rules."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.returns import drgrpo, rloo
from palaestra.learning.credit.rule import Credit, CreditRule, per_token
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, find
from palaestra.learning.methods.credit_comparison import (
    Estimate,
    agreement,
    as_json,
    compare,
    correlation,
    disputes,
    per_turn,
    ranks,
)
from tests.learning.credit import made

RETURNS = [1.0, 0.0, 0.5, 0.0]
series = st.lists(st.integers(-4, 4).map(float), min_size=3, max_size=30)


def rule_giving(*turns: Sequence[float]) -> CreditRule:
    """A rule that gives the rollouts of a batch these advantages per turn."""
    return lambda batch: Credit(
        [per_token(t, numbers) for t, numbers in zip(batch, turns, strict=True)]
    )


def last_turn(batch: Sequence[Trajectory]) -> Credit:
    """All credit to the last turn: the return's distance from one half."""
    found = [[0.0] * (len(t.turns) - 1) + [t.total - 0.5] for t in batch]
    return Credit([per_token(t, numbers) for t, numbers in zip(batch, found, strict=True)])


# ── what one rule does ───────────────────────────────────────────────────────


def test_a_rule_that_gives_a_rollout_one_number_has_no_variance_within_rollouts() -> None:
    (figures,) = compare(made.batch(RETURNS, turns=2, tokens=3), {"rloo": rloo}).rules
    assert figures.name == "rloo"
    expected = [0.8333, -0.5, 0.1667, -0.5]
    for numbers, value in zip(figures.advantages, expected, strict=True):
        assert numbers == pytest.approx((value, value), abs=5e-5)
    assert figures.mean == pytest.approx(0)
    # over 8 turns: 2 * (25/36 + 1/4 + 1/36 + 1/4) / 7
    assert figures.variance == pytest.approx(2 * (26 / 36 + 1 / 2) / 7)
    assert figures.within == pytest.approx(0)
    assert (figures.zero_turns, figures.zero_tokens, figures.silent_groups) == (0, 0, 0)


def test_credit_for_the_last_turn_alone_leaves_the_others_without_gradient() -> None:
    batch = [
        made.rollout([0.0, 0.0], outcome=1.0, tokens=[6, 2]),
        made.rollout([0.0, 0.0], outcome=0.0, tokens=[6, 2], member=1),
    ]
    (figures,) = compare(batch, {"last": last_turn}).rules
    assert figures.advantages == ((0.0, 0.5), (0.0, -0.5))
    assert figures.zero_turns == 0.5
    assert figures.zero_tokens == 0.75
    # the rollouts' means, +0.25 and -0.25, hold half of the sum of squares
    assert figures.within == pytest.approx(0.5)


def test_groups_in_which_all_did_alike_are_silent() -> None:
    batch = made.batch(RETURNS) + made.batch([0.5, 0.5], group=1) + made.batch([0.0] * 3, group=2)
    (figures,) = compare(batch, {"rloo": rloo}).rules
    assert figures.silent_groups == pytest.approx(2 / 3)
    assert figures.zero_turns == pytest.approx(5 / 9)


def test_the_advantage_of_a_turn_is_the_mean_over_its_tokens() -> None:
    rollout = made.rollout([0.0, 0.0], tokens=[3, 1])
    (found,) = per_turn([rollout], [torch.tensor([1.0, 2.0, 6.0, -1.0], dtype=torch.float64)])
    assert found.tolist() == [3.0, -1.0]
    mixed = compare(
        [rollout], {"cancel": lambda batch: Credit([torch.tensor([1.0, -1.0, 0.0, 0.0])])}
    ).rules[0]
    assert mixed.advantages == ((0.0, 0.0),)
    assert mixed.zero_turns == 0.5  # its tokens do pull, though their mean is zero


@given(made.trajectories(), st.randoms(use_true_random=False))
def test_the_order_of_the_batch_changes_no_figure(
    batch: list[Trajectory], rng: random.Random
) -> None:
    rules = {name: find(Kind.CREDIT, name).function for name in ("rloo", "grpo", "return_to_go")}
    shuffled = rng.sample(batch, len(batch))
    plain, other = compare(batch, rules), compare(shuffled, rules)
    for a, b in zip(plain.rules, other.rules, strict=True):
        for name in ("mean", "variance", "within", "zero_turns", "zero_tokens", "silent_groups"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-9)
    for pair, found in plain.pairs.items():
        assert found.opposite == pytest.approx(other.pairs[pair].opposite, abs=1e-9)
        assert found.spearman == pytest.approx(other.pairs[pair].spearman, abs=1e-6)


# ── how two rules agree ──────────────────────────────────────────────────────


def test_signs_are_compared_where_both_rules_give_one() -> None:
    a, b = torch.tensor([1.0, -1, 0, 2, -3]).double(), torch.tensor([-1.0, -1, 1, 2, 5]).double()
    found = agreement(a, b)
    assert (found.turns, found.signed) == (5, 4)
    assert found.opposite == 0.5
    assert agreement(a, torch.zeros(5).double()).opposite is None


@given(series, st.data())
def test_correlations_are_those_of_scipy(x: list[float], data: st.DataObject) -> None:
    y = data.draw(st.lists(st.floats(-5, 5), min_size=len(x), max_size=len(x)))
    assume(len(set(x)) > 1 and max(y) - min(y) > 1e-3)
    a, b = torch.tensor(x).double(), torch.tensor(y).double()
    assert correlation(a, b) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-6)
    grid = [round(v, 6) for v in y]
    found = agreement(a, torch.tensor(grid).double()).spearman
    assert found == pytest.approx(stats.spearmanr(x, grid)[0], abs=1e-6)


@given(series)
def test_ranks_are_those_of_scipy(x: list[float]) -> None:
    assert ranks(torch.tensor(x).double()).tolist() == stats.rankdata(x).tolist()


def test_rounding_does_not_order_equal_numbers() -> None:
    third = torch.tensor([1 / 3, 1 - 2 / 3, 0.0, 1.0]).double()
    assert ranks(third).tolist() == [2.5, 2.5, 1.0, 4.0]


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0]])
def test_what_does_not_vary_has_no_correlation(values: list[float]) -> None:
    a = torch.tensor(values).double()
    assert correlation(a, torch.arange(len(values)).double()) is None


@given(made.trajectories(), st.floats(0.1, 10))
def test_the_unit_of_a_rule_does_not_matter_and_its_negative_disagrees(
    batch: list[Trajectory], factor: float
) -> None:
    def scaled(by: float) -> Callable[[Sequence[Trajectory]], Credit]:
        return lambda batch: Credit([by * found for found in rloo(batch).advantages])

    found = compare(batch, {"plain": rloo, "larger": scaled(factor), "against": scaled(-1)})
    larger, against = found.pairs["plain", "larger"], found.pairs["plain", "against"]
    if larger.signed:
        assert (larger.opposite, against.opposite) == (0.0, 1.0)
    if larger.pearson is not None:
        assert larger.pearson == pytest.approx(1)
        assert against.spearman == pytest.approx(-1)


def test_every_two_rules_are_compared_once() -> None:
    rules = {"a": rloo, "b": drgrpo, "c": last_turn}
    assert list(compare(made.batch(RETURNS), rules).pairs) == [("a", "b"), ("a", "c"), ("b", "c")]


# ── against what turns were truly worth ──────────────────────────────────────

TWO = [made.rollout([0.0, 0.0], outcome=1.0), made.rollout([0.0, 0.0], member=1)]


def test_only_measured_turns_count_and_only_clear_signs() -> None:
    first, second = TWO[0].key, TWO[1].key
    truth = {
        (first, 0): Estimate(0.5, 0.1),  # clear
        (first, 1): Estimate(0.1, 0.1),  # within two standard errors of zero
        (second, 1): Estimate(-0.4, 0.1),  # clear
    }
    (figures,) = compare(TWO, {"rule": rule_giving([1.0, -1.0], [9.0, 2.0])}, truth).rules
    assert figures.truth is not None
    assert (figures.truth.turns, figures.truth.signed) == (3, 2)
    assert figures.truth.opposite == 0.5  # right on the first, wrong on the last
    expected = stats.spearmanr([1.0, -1.0, 2.0], [0.5, 0.1, -0.4])[0]
    assert figures.truth.spearman == pytest.approx(expected)


def test_reliability_is_the_share_of_the_measured_variance_that_is_no_noise() -> None:
    truth = {
        (t.key, k): Estimate(value, 0.1)
        for t, values in zip(TWO, [(0.3, -0.3), (0.3, -0.3)], strict=True)
        for k, value in enumerate(values)
    }
    found = compare(TWO, {"rule": rloo}, truth)
    assert found.reliability == pytest.approx(1 - 0.01 / 0.12)  # variance of ±0.3: 4 * 0.09 / 3
    noisy = {place: Estimate(e.mean, 9.0) for place, e in truth.items()}
    assert compare(TWO, {"rule": rloo}, noisy).reliability == 0.0
    assert compare(TWO, {"rule": rloo}).reliability is None


def test_a_rule_that_says_the_truth_agrees_with_it() -> None:
    values = [[0.3, -0.2], [0.1, -0.6]]
    truth = {
        (t.key, k): Estimate(value, 0.01)
        for t, row in zip(TWO, values, strict=True)
        for k, value in enumerate(row)
    }
    (figures,) = compare(TWO, {"oracle": rule_giving(*values)}, truth).rules
    assert figures.truth is not None
    assert figures.truth.pearson == pytest.approx(1)
    assert figures.truth.spearman == pytest.approx(1)
    assert figures.truth.opposite == 0


# ── disputes, records, mistakes ──────────────────────────────────────────────


def test_the_turn_that_rules_see_most_differently_comes_first() -> None:
    batch = [made.rollout([0.0] * 3, member=m) for m in range(3)]
    calm = [0.2, 0.2, 0.2]
    one = rule_giving(calm, [0.2, 1.0, 0.2], calm)
    other = rule_giving([1.0, 1.0, 1.0], [1.0, -10.0, 1.0], [1.0, 1.0, -1.0])  # in another unit
    found = disputes(compare(batch, {"one": one, "other": other}))
    assert (found[0].rollout, found[0].turn) == (1, 1)
    assert [d.rollout for d in found] == [1, 2, 0]  # one turn of each rollout
    assert found[0].spread > found[1].spread > found[2].spread


def test_with_one_rule_its_strongest_turns_are_shown() -> None:
    found = disputes(compare(TWO, {"rule": rule_giving([0.0, -3.0], [1.0, 0.0])}))
    assert [(d.rollout, d.turn) for d in found] == [(0, 1), (1, 0)]
    assert disputes(compare(TWO, {"nothing": rule_giving([0.0, 0.0], [0.0, 0.0])})) == []


def test_a_comparison_can_be_shown_as_json() -> None:
    truth = {(TWO[0].key, 1): Estimate(0.5, 0.1)}
    found = as_json(compare(TWO, {"rloo": rloo, "last": last_turn}, truth))
    assert json.loads(json.dumps(found)) == found
    assert (found["rollouts"], found["groups"], found["turns"], found["tokens"]) == (2, 1, 4, 4)
    assert found["truth"]["advantages"] == [[None, {"mean": 0.5, "error": 0.1}], [None, None]]
    assert found["trajectories"][0]["return"] == 1.0
    assert [turn["reward"] for turn in found["trajectories"][0]["turns"]] == [0.0, 1.0]
    assert as_json(compare(TWO, {"rloo": rloo}))["truth"] is None


@pytest.mark.parametrize("tokens", [[1, 2], [2, 2, 2]])
def test_a_rule_that_does_not_credit_every_token_is_named(tokens: list[int]) -> None:
    with pytest.raises(InputError, match=r"'short' gave .*one tensor per rollout"):
        compare(TWO, {"short": lambda batch: Credit([torch.zeros(n) for n in tokens])})


def test_a_rule_that_returns_no_number_is_named() -> None:
    with pytest.raises(InputError, match="'lost' gave nan among its advantages"):
        compare(TWO, {"lost": rule_giving([0.0, float("nan")], [0.0, 0.0])})


def test_what_a_rule_has_against_the_batch_is_heard() -> None:
    with pytest.raises(GroupTooSmall):
        compare(TWO[:1], {"rloo": rloo})
