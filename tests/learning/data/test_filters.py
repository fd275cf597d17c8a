"""Group filters and shapers: the published numbers, and that order decides nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.data.filters import (
    keep_all,
    most_varied,
    negligible,
    spread,
    varied,
)
from palaestra.learning.data.reward_terms import overlong_punishment
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.methods.component import Kind, Need, Status, find

PUBLISHED = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def made(*returns, turn=0.0):
    """Groups with these outcomes; `turn` is what the one turn of the first member earns."""
    return [
        [
            Trajectory(
                key=Key("rl/1", g, m),
                group=f"rl/1/{g}",
                turns=(Turn(1, reward=turn if m == 0 else 0.0),),
                outcome=float(outcome),
                success=outcome >= 1,
            )
            for m, outcome in enumerate(group)
        ]
        for g, group in enumerate(returns)
    ]


batches = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.3, 1.0, 1.1]), max_size=6), max_size=8
).map(lambda returns: made(*returns))
filters = pytest.mark.parametrize(
    "keep",
    [
        keep_all,
        varied,
        lambda groups: varied(groups, metric="total"),
        most_varied,
        lambda groups: most_varied(groups, share=0.6),
    ],
    ids=["all", "dapo", "dapo total", "starpo", "starpo 0.6"],
)


def test_dapo_keeps_groups_with_successes_and_failures():
    assert varied(made(*PUBLISHED)) == [False, True, True, False]


def test_dapo_judges_by_success_because_shaping_makes_every_group_look_varied():
    groups = made([1, 1, 1], [0, 0, 0], turn=-0.05)
    assert varied(groups) == [False, False]
    assert varied(groups, metric="total") == [True, True]


def test_dapo_has_no_other_metric():
    with pytest.raises(RecipeError, match=r"'progress'.*success or total"):
        varied([], metric="progress")


def test_the_spread_of_groups_gives_the_published_numbers():
    assert [spread(g) for g in made(*PUBLISHED)] == pytest.approx([0, 0.5774, 0.5, 0], abs=5e-5)


@pytest.mark.parametrize(("share", "kept"), [(0.25, {1}), (0.5, {1, 2}), (1.0, {0, 1, 2, 3})])
def test_starpo_keeps_the_published_groups(share, kept):
    keep = most_varied(made(*PUBLISHED), share=share)
    assert {i for i, on in enumerate(keep) if on} == kept


def test_starpo_keeps_one_group_where_the_share_is_less_than_one():
    assert most_varied(made([1, 1], [1, 0], [0, 0]), share=0.25) == [False, True, False]


@given(st.integers(1, 100), st.integers(1, 100))
def test_starpo_keeps_the_whole_part_of_the_share(percent, count):
    keep = most_varied(made(*[[0, 1]] * count), share=percent / 100)
    assert sum(keep) == max(1, percent * count // 100)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_starpo_rejects_shares_that_are_none(share):
    with pytest.raises(RecipeError, match=r"\(0, 1\]"):
        most_varied([], share=share)


@filters
@given(groups=batches, data=st.data())
def test_filters_do_not_depend_on_order(keep, groups, data):
    order = data.draw(st.permutations(range(len(groups))))
    shuffled = [data.draw(st.permutations(groups[i])) for i in order]
    flags = keep(groups)
    assert keep(shuffled) == [flags[i] for i in order]


@filters
@given(groups=batches)
def test_filters_give_one_flag_per_group(keep, groups):
    flags = keep(groups)
    assert len(flags) == len(groups)
    assert all(isinstance(flag, bool) for flag in flags)


@given(batches)
def test_dapo_keeps_no_group_that_teaches_nothing(groups):
    for group, kept in zip(groups, varied(groups, metric="total"), strict=True):
        assert kept == (spread(group) > 0)


def test_a_rollout_is_negligible_if_all_its_advantages_are():
    assert negligible(torch.tensor([0.009, -0.009]))
    assert not negligible(torch.tensor([0.009, -0.011]))
    assert not negligible(torch.tensor([0.5]), eps=0.5)
    assert negligible(torch.tensor([]))


@pytest.mark.parametrize(
    ("length", "reward"), [(0, 0), (16384, 0), (18432, -0.5), (20480, -1), (20481, -1)]
)
def test_overlong_shaping_gives_the_published_numbers(length: int, reward: float) -> None:
    assert overlong_punishment(length) == reward


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_longer_rollout_never_earns_more(a: int, b: int) -> None:
    short, long = (overlong_punishment(n, limit=200, buffer=50) for n in sorted((a, b)))
    assert short >= long >= -1


@pytest.mark.parametrize("buffer", [0, 201])
def test_the_overlong_buffer_lies_within_the_limit(buffer: int) -> None:
    with pytest.raises(RecipeError, match="buffer"):
        overlong_punishment(10, limit=200, buffer=buffer)


@pytest.mark.parametrize(
    ("function", "name", "status"),
    [
        ("keep_all", "all", Status.OURS),
        ("varied", "dapo", Status.RELEASE),
        ("most_varied", "starpo", Status.RELEASE),
    ],
)
def test_filters_are_registered_with_their_source(function, name, status):
    part = find(Kind.FILTER, f"palaestra.learning.data.filters:{function}")
    assert (part.name, part.status) == (name, status)
    assert name == "all" or part.needs == {Need.GROUP}
