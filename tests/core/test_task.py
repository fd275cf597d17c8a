"""Tasks: splits share no seed, whatever the numbers; names are checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.budget import Budget
from palaestra.core.errors import UnknownName
from palaestra.core.outcome import Limit
from palaestra.core.task import Split, TaskSet, parse_split

numbers = st.integers(0, 10**9)


@given(st.sampled_from(list(Split)), numbers, st.sampled_from(list(Split)), numbers)
def test_equal_seeds_mean_the_same_task(a: Split, i: int, b: Split, j: int) -> None:
    tasks = TaskSet("world")
    one, other = tasks.task(a, i), tasks.task(b, j)
    assert (one.seed == other.seed) == ((a, i) == (b, j)) == (one == other)


def test_a_finite_set_starts_over_after_its_last_task() -> None:
    tasks = TaskSet("world", size=3)
    assert tasks.take(Split.TEST, 3) == tasks.take(Split.TEST, 3, start=3)
    assert len({task.id for task in tasks.take(Split.TEST, 9)}) == 3


def test_an_unknown_split_is_answered_with_the_nearest_name() -> None:
    assert parse_split("test") is Split.TEST
    with pytest.raises(UnknownName, match="Did you mean 'train'"):
        parse_split("trian")


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(), None),
        (Budget(turns=5, tokens=10, seconds=2.0), None),
        (Budget(turns=4, tokens=9), Limit.TURNS),
        (Budget(tokens=9, seconds=1.0), Limit.TOKENS),
        (Budget(seconds=1.5), Limit.SECONDS),
    ],
)
def test_a_budget_names_the_first_limit_that_is_reached(
    budget: Budget, limit: Limit | None
) -> None:
    assert budget.exhausted(turns=4, sampled=9, seconds=1.5) is limit
