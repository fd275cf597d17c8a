"""The operators that credit rules are made of."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.gae import decoupled_gae
from palaestra.learning.credit.rule import (
    broadcast,
    centred,
    check_choice,
    check_groups,
    discounted,
    explained_variance,
    groups,
    normalised,
    per_token,
    token_rewards,
    turn_starts,
    whitened,
    within,
)
from tests.learning.credit.made import QUARTERS, batch, close, rollout

NAN = float("nan")
FIXTURE = torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
numbers = st.lists(st.floats(-10, 10), min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
keyed = st.lists(st.tuples(st.sampled_from("abc"), QUARTERS), min_size=1, max_size=12)


def test_the_fixture_has_the_published_mean_and_deviations() -> None:
    assert float(FIXTURE.mean()) == 0.3750
    assert float(FIXTURE.std(correction=0)) == pytest.approx(0.4146, abs=5e-5)
    assert float(FIXTURE.std(correction=1)) == pytest.approx(0.4787, abs=5e-5)


def test_a_turns_number_goes_to_each_of_its_tokens() -> None:
    trajectory = rollout([0, 0, 0], tokens=[2, 1, 3])
    assert per_token(trajectory, [1, 2, 3]).tolist() == [1, 1, 2, 3, 3, 3]


def test_turns_start_where_the_tokens_of_those_before_end() -> None:
    assert turn_starts(rollout([0, 0, 0], tokens=[2, 1, 3])).tolist() == [0, 2, 3]


def test_rewards_are_earned_at_the_last_tokens_of_turns() -> None:
    trajectory = rollout([0.5, 0.25], outcome=1, tokens=[2, 3])
    assert token_rewards(trajectory) == [0, 0.5, 0, 0, 1.25]
    assert sum(token_rewards(trajectory)) == trajectory.total


def test_a_rollouts_number_goes_to_all_its_tokens_and_to_none_of_its_neighbours() -> None:
    credit = broadcast(batch([0, 0], turns=[1, 2], tokens=2), [5, 7])
    first, second = credit.advantages
    assert (first.tolist(), second.tolist()) == ([5, 5], [7, 7, 7, 7])
    first += 1  # no shared memory: a caller may scale in place
    assert first.tolist() == [6, 6]


def test_groups_come_in_the_order_of_first_appearance() -> None:
    assert groups(["b", "a", "b", "c", "a"]) == [[0, 2], [1, 4], [3]]
    assert groups([]) == []


@given(keyed)
def test_within_sees_each_key_alone(pairs: list[tuple[str, float]]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    found = within(values, keys, lambda x: x.mean().expand_as(x))
    for key, mean in zip(keys, found.tolist(), strict=True):
        assert mean == pytest.approx(fmean(v for k, v in pairs if k == key))


@given(numbers)
def test_centred_numbers_sum_to_zero_and_keep_their_distances(values: torch.Tensor) -> None:
    found = centred(values)
    assert float(found.sum()) == pytest.approx(0, abs=1e-12 * (1 + float(values.abs().sum())))
    assert close(found - found[0], values - values[0], 1e-12)


@given(st.floats(-10, 10), st.integers(1, 12))
def test_equal_numbers_centre_to_exactly_zero(value: float, count: int) -> None:
    values = torch.full((count,), value, dtype=torch.float64)
    assert bool((centred(values) == 0).all())
    assert bool((normalised(values) == 0).all())


@pytest.mark.parametrize("ddof", [0, 1])
@given(values=st.lists(QUARTERS, min_size=3, max_size=12))
def test_normalised_numbers_have_deviation_one(ddof: int, values: list[float]) -> None:
    found = normalised(torch.tensor(values, dtype=torch.float64), ddof=ddof)
    deviation = float(found.std(correction=ddof))
    assert deviation == pytest.approx(0 if len(set(values)) == 1 else 1, abs=2e-5)


def test_one_number_has_no_deviation() -> None:
    assert normalised(torch.tensor([3.0])).tolist() == [0]
    assert normalised(torch.tensor([3.0]), ddof=0).tolist() == [0]


def test_whitening_of_little() -> None:
    assert whitened([]) == []
    assert whitened([torch.tensor([3.0])])[0].tolist() == [0]
    equal = whitened([torch.full((2,), 0.1), torch.full((3,), 0.1)])
    assert [part.tolist() for part in equal] == [[0, 0], [0, 0, 0]]


def test_discounted_returns_to_go() -> None:
    assert discounted([0, 0, 1], 0.9) == pytest.approx([0.81, 0.90, 1.00])
    assert discounted([1, 2, 3], 1) == [6, 5, 3]
    assert discounted([1, 2, 3], 0) == [1, 2, 3]
    assert discounted([], 0.5) == []


@given(st.lists(QUARTERS, min_size=2, max_size=8), st.floats(0, 1))
def test_a_return_is_its_reward_and_the_discounted_next_return(
    rewards: list[float], gamma: float
) -> None:
    found = discounted(rewards, gamma)
    for k, reward in enumerate(rewards[:-1]):
        assert found[k] == pytest.approx(reward + gamma * found[k + 1])


def test_explained_variance_before_and_after_a_fit() -> None:
    credit = decoupled_gae([rollout([0, 0, 1], values=[0, 0, 0])])
    assert credit.returns is not None
    assert close(credit.returns[0], [1, 1, 1])  # what a new critic is pretrained on
    assert explained_variance(torch.zeros(3), credit.returns[0]) == 0.0
    varying = torch.tensor([1.0, 0.0, 0.5, 0.0])
    assert explained_variance(torch.zeros(4), varying) == 0.0
    assert explained_variance(varying, varying) == 1.0
    assert explained_variance(varying + 3, varying) == pytest.approx(1.0)  # a bias is no variance
    assert explained_variance(-varying, varying) == pytest.approx(-3.0)


def test_explained_variance_leaves_out_what_has_no_target() -> None:
    values, returns = torch.tensor([1.0, 9.0, 0.0]), torch.tensor([1.0, NAN, 0.0])
    assert explained_variance(values, returns) == 1.0
    assert explained_variance(torch.zeros(2), torch.full((2,), NAN)) == 0.0


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.floats(-3, 3))
def test_a_constant_critic_explains_nothing(returns: list[float], value: float) -> None:
    found = explained_variance(
        torch.full((len(returns),), value, dtype=torch.float64),
        torch.tensor(returns, dtype=torch.float64),
    )
    spread = max(returns) - min(returns)
    assert found == pytest.approx(0, abs=1e-9) or spread < 1e-3


def test_a_group_that_is_too_small_is_named_with_the_remedy() -> None:
    mixed = [*batch([1, 0]), *batch([1], group=7)]
    with pytest.raises(GroupTooSmall, match=r"some rule .* 'rl/1/7' has 1; set rl\.group"):
        check_groups(mixed, "some rule")
    check_groups(mixed, "some rule", least=1)
    check_groups([], "some rule")


def test_an_unknown_choice_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"some rule .* over = 'calls'; choose one of: a, b\."):
        check_choice("some rule", "over", "calls", ("a", "b"))
    check_choice("some rule", "over", "a", ("a", "b"))
