"""Credit from returns alone: the published numbers, and the laws behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.returns import (
    drgrpo,
    grpo,
    reinforce,
    reinforce_plus_plus,
    remax,
    rloo,
    rollout_broadcast,
    running,
)
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import batch, close, rollout, scalars, trajectories

Rule = Callable[[list[Trajectory]], Credit]
FIXTURE = [1.0, 0.0, 0.5, 0.0]
GROUP_RULES: list[Rule] = [
    rloo,
    grpo,
    partial(grpo, ddof=0),
    partial(grpo, scale="batch"),
    partial(grpo, scale="none"),
    drgrpo,
    rollout_broadcast,
    partial(reinforce, baseline="group"),
]
returns_of_a_group = st.lists(st.floats(-10, 10), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (rloo, [0.8333, -0.5, 0.1667, -0.5]),
        (grpo, [1.3056, -0.7833, 0.2611, -0.7833]),
        (partial(grpo, ddof=0), [1.5076, -0.9045, 0.3015, -0.9045]),
        (partial(grpo, eps=1e-4), [1.3053, -0.7832, 0.2611, -0.7832]),
        (drgrpo, [0.6250, -0.3750, 0.1250, -0.3750]),
        (partial(grpo, scale="none"), [0.6250, -0.3750, 0.1250, -0.3750]),
        (rollout_broadcast, [1.3056, -0.7833, 0.2611, -0.7833]),
        (partial(reinforce, baseline="group"), [0.8333, -0.5, 0.1667, -0.5]),
    ],
)
def test_the_published_numbers(rule: Rule, expected: list[float]) -> None:
    assert close(scalars(rule(batch(FIXTURE, turns=2, tokens=3))), expected)


def test_reinforce_discounts_over_tokens_and_turns() -> None:
    returns = [0.81, 0.90, 1.00]
    one_turn = rollout([0], outcome=1, tokens=3)
    three_turns = rollout([0, 0, 0], outcome=1)
    for trajectory in (one_turn, three_turns):
        assert close(reinforce([trajectory], gamma=0.9).advantages[0], returns)
    per_turn = reinforce([one_turn, three_turns], gamma=0.9, axis="turn")
    assert close(per_turn.advantages[0], [1, 1, 1])
    assert close(per_turn.advantages[1], returns)


@pytest.mark.parametrize("baseline", ["batch", "group"])
def test_reinforce_subtracts_the_mean_of_the_others(baseline: str) -> None:
    judged, *others = rollout([0, 0, 0], outcome=1), *batch([0.25, 0.75])
    credit = reinforce([judged, *others], baseline=baseline, gamma=0.9)
    assert close(credit.advantages[0], [0.31, 0.40, 0.50])


def test_the_batch_baseline_crosses_groups_and_the_group_baseline_does_not() -> None:
    mixed = [*batch([1, 0]), *batch([1, 1], group=1)]
    assert close(scalars(reinforce(mixed, baseline="group")), [1, -1, 0, 0])
    assert close(scalars(reinforce(mixed, baseline="batch")), [1 / 3, -1, 1 / 3, 1 / 3])


def test_reinforce_credits_a_turn_with_what_followed_it_only() -> None:
    trajectory = rollout([0.5, -0.25], outcome=1, tokens=2)
    assert reinforce([trajectory]).advantages[0].tolist() == [1.25, 1.25, 0.75, 0.75]


def test_a_batch_of_one_has_no_others() -> None:
    with pytest.raises(GroupTooSmall, match=r"batch.*got 1; set rl\.group"):
        reinforce(batch([1]), baseline="batch")
    assert scalars(reinforce(batch([1]))).tolist() == [1]


def test_the_running_baseline_is_of_earlier_batches() -> None:
    first = running(batch([1, 0.5]), decay=0.9)
    assert scalars(first).tolist() == [1, 0.5]  # nothing came before
    assert first.state == {"baseline": 0.75}
    second = running(batch([1, 1, 0]), decay=0.9, state=first.state)
    assert scalars(second).tolist() == [0.25, 0.25, -0.75]
    assert second.state["baseline"] == pytest.approx(0.9 * 0.75 + 0.1 * 2 / 3)
    assert running([], state=second.state).state == second.state


def test_the_running_baseline_reads_only_its_own_state() -> None:
    with pytest.raises(InputError, match="no 'baseline'"):
        running(batch([1]), state={"b/agent": 0.5})


def test_reinforce_plus_plus_whitens_over_tokens() -> None:
    long, short = rollout([0, 0, 0], outcome=1), rollout([0])
    credit = reinforce_plus_plus([long, short], gamma=0.9)
    returns = torch.tensor([0.81, 0.90, 1.00, 0.0], dtype=torch.float64)
    expected = (returns - 0.6775) / 0.458285  # mean and deviation (n - 1) of the four tokens
    assert close(torch.cat(credit.advantages), expected)


@given(trajectories())
def test_whitened_tokens_have_mean_zero_and_deviation_one(sampled: list[Trajectory]) -> None:
    tokens = torch.cat(reinforce_plus_plus(sampled).advantages)
    assert float(tokens.mean()) == pytest.approx(0, abs=1e-9)
    if bool((tokens != 0).any()):
        assert float(tokens.std()) == pytest.approx(1, abs=1e-5)


def test_remax_judges_against_the_greedy_rollout() -> None:
    sampled = batch([1, 0], tokens=2, greedy=0.5)
    assert scalars(remax(sampled)).tolist() == [0.5, -0.5]
    with_turn_reward = rollout([0.25, 0], outcome=1, slots={"greedy": 0.5})
    assert remax([with_turn_reward]).advantages[0].tolist() == [0.75, 0.5]


def test_remax_without_a_greedy_rollout_reports_it() -> None:
    with pytest.raises(InputError, match=r"greedy rollout .* rl/1/0\.1 has none"):
        remax([batch([1], greedy=0.5)[0], batch([1, 0])[1]])


def test_grpo_scaled_by_the_batch_centres_by_the_group() -> None:
    mixed = [*batch([1, 0]), *batch([3, 1], group=1)]
    deviation = 1.258306  # of 1, 0, 3, 1
    expected = [0.5 / deviation, -0.5 / deviation, 1 / deviation, -1 / deviation]
    assert close(scalars(grpo(mixed, scale="batch")), expected)


def test_nearly_uniform_groups_get_the_largest_normalised_advantages() -> None:
    for successes, factor in ((1, 2.65), (4, 1.75)):
        group = batch([1] * successes + [0] * (8 - successes))
        ratio = scalars(grpo(group, ddof=0))[0] / scalars(rloo(group))[0]
        assert float(ratio) == pytest.approx(factor, abs=5e-3)


def test_one_vote_per_rollout_however_many_calls_it_made() -> None:
    unequal = batch([1, 0], turns=[3, 1])
    root = 0.5**0.5
    assert close(scalars(rollout_broadcast(unequal)), [root, -root])
    # Legacy: the votes are 1, 1, 1, 0, with mean 0.75 and deviation 0.5.
    assert close(scalars(rollout_broadcast(unequal, legacy=True)), [0.5, -1.5])


def test_advantages_of_the_rollout_level_example() -> None:
    """Rows of 2 and 6 tokens against one of 4: weights of 1 / (tokens of rollout * rows)."""
    pair = [rollout([0, 0], outcome=1, tokens=[2, 6], segment=[0, 1]), rollout([0], tokens=4)]
    credit = rollout_broadcast(pair, ddof=0)
    weights = [a / (len(a) * 3) for a in credit.advantages]
    assert close(weights[0], [0.0417] * 8)
    assert close(weights[1], [-0.0833] * 4)
    rows = [weights[0][:2].sum(), weights[0][2:].sum(), weights[1].sum()]
    assert close(torch.stack(rows), [0.0833, 0.2500, -0.3333])


@given(returns_of_a_group)
def test_leave_one_out_is_the_distance_to_the_mean_of_the_others(returns: list[float]) -> None:
    others = [(sum(returns) - own) / (len(returns) - 1) for own in returns]
    expected = [own - other for own, other in zip(returns, others, strict=True)]
    assert close(scalars(rloo(batch(returns))), expected, 1e-9)


@given(returns_of_a_group)
def test_drgrpo_is_leave_one_out_shrunk(returns: list[float]) -> None:
    factor = (len(returns) - 1) / len(returns)
    group = batch(returns)
    assert close(scalars(drgrpo(group)), factor * scalars(rloo(group)), 1e-9)


@pytest.mark.parametrize("rule", GROUP_RULES)
@given(returns=returns_of_a_group)
def test_advantages_of_a_group_sum_to_zero(rule: Rule, returns: list[float]) -> None:
    advantages = scalars(rule(batch(returns)))
    assert abs(float(advantages.sum())) < 1e-6 * (1 + float(advantages.abs().sum()))


@pytest.mark.parametrize("rule", [*GROUP_RULES, partial(rollout_broadcast, legacy=True)])
@given(value=st.floats(-10, 10), turns=st.lists(st.integers(1, 4), min_size=2, max_size=12))
def test_equal_returns_teach_exactly_nothing(rule: Rule, value: float, turns: list[int]) -> None:
    assert bool((scalars(rule(batch([value] * len(turns), turns=turns))) == 0).all())


@given(returns_of_a_group, st.floats(0.1, 100), st.floats(-10, 10))
def test_group_normalisation_ignores_the_unit_of_reward(
    returns: list[float], scale: float, shift: float
) -> None:
    if float(torch.tensor(returns).std()) < 0.1:
        return
    other = batch([scale * value + shift for value in returns])
    assert close(scalars(grpo(batch(returns))), scalars(grpo(other)), 1e-3)


@pytest.mark.parametrize(
    "rule", [rloo, grpo, drgrpo, rollout_broadcast, partial(reinforce, baseline="group")]
)
@given(sampled=trajectories(groups=(2, 3)))
def test_a_group_is_judged_without_the_others_of_the_batch(
    rule: Rule, sampled: list[Trajectory]
) -> None:
    together = dict(zip([t.key for t in sampled], rule(sampled).advantages, strict=True))
    for name in {t.group for t in sampled}:
        alone = [t for t in sampled if t.group == name]
        for trajectory, advantages in zip(alone, rule(alone).advantages, strict=True):
            assert close(advantages, together[trajectory.key], 1e-9)


@pytest.mark.parametrize("rule", GROUP_RULES)
def test_a_rollout_without_siblings_cannot_be_judged(rule: Rule) -> None:
    with pytest.raises(GroupTooSmall, match=r"'rl/1/1' has 1; set rl\.group"):
        rule([*batch([1, 0]), *batch([1], group=1)])


@pytest.mark.parametrize(
    "wrong",
    [
        partial(reinforce, baseline="median"),
        partial(reinforce, axis="call"),
        partial(grpo, scale="task"),
    ],
)
def test_an_unknown_choice_is_named_with_the_known_ones(wrong: Rule) -> None:
    with pytest.raises(InputError, match=r"does not know .*'(median|call|task)'; choose one of"):
        wrong(batch([1, 0]))


def test_turn_rewards_count_in_the_return_of_a_rollout() -> None:
    early, late = rollout([0.5, 0], outcome=0.5), rollout([0, 0], outcome=1)
    assert scalars(rloo([early, late])).tolist() == [0, 0]
    assert scalars(rloo([early, replace(late, outcome=0)])).tolist() == [1, -1]
