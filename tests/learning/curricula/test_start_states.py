"""Starts from recorded states: rare states are reached, ordinary starts return, resumes agree."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.curricula.start_states import (
    Snapshot,
    backward,
    clustered,
    snapshot_share,
    starts,
)
from palaestra.learning.methods.component import Kind, Need, Status, find


def recorded(*progress):
    return [Snapshot(Key("rl/1", 0, 0), step, p) for step, p in enumerate(progress)]


snapshots = st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.55, 0.9, 1.0]), max_size=20).map(
    lambda progress: recorded(*progress)
)


def test_rare_states_weigh_as_much_as_common_ones_together():
    weights = clustered(recorded(0.0, 0.01, 0.02, 0.9), clusters=2)
    assert weights == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_equal_states_share_one_cluster():
    assert clustered(recorded(0.5, 0.5, 0.5, 1.0)) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


@given(snapshots, st.integers(1, 8), st.data())
def test_weights_are_probabilities_and_order_decides_nothing(found, clusters, data):
    weights = clustered(found, clusters=clusters)
    assert all(w > 0 for w in weights)
    assert sum(weights) == pytest.approx(1 if found else 0)
    order = data.draw(st.permutations(range(len(found))))
    assert clustered([found[i] for i in order], clusters=clusters) == [weights[i] for i in order]


def test_snapshots_need_a_cluster():
    with pytest.raises(RecipeError, match="clusters"):
        clustered(recorded(0.5), clusters=0)


@pytest.mark.parametrize(("step", "share"), [(1, 1), (26, 0.75), (51, 0.5), (101, 0), (500, 0)])
def test_ordinary_starts_return_step_by_step(step, share):
    assert snapshot_share(step, until=100) == pytest.approx(share)


def test_without_a_schedule_all_starts_are_ordinary():
    assert snapshot_share(1, until=0) == 0
    assert starts(recorded(0.5), 4, 1, until=0, seed=0) == [None] * 4
    assert starts([], 4, 1, until=100, seed=0) == [None] * 4


def test_starts_follow_the_share_and_the_clusters():
    found = recorded(0.0, 0.01, 0.02, 0.9)
    chosen = Counter(starts(found, 4000, 51, until=100, seed=1, clusters=2))
    assert abs(chosen[None] - 2000) < 160  # sd 32
    assert abs(chosen[found[3]] - 1000) < 140  # sd 27
    assert abs(chosen[found[0]] - 333) < 90  # sd 17


@given(snapshots, st.integers(0, 8), st.integers(1, 150), st.integers(0, 99))
def test_a_resumed_step_starts_from_the_same_states(found, count, step, seed):
    chosen = starts(found, count, step, until=100, seed=seed)
    assert chosen == starts(list(found), count, step, until=100, seed=seed)
    assert len(chosen) == count
    assert all(snapshot is None or snapshot in found for snapshot in chosen)
    assert step <= 100 or not any(chosen)


def test_steps_differ_in_their_starts():
    found = recorded(*[i / 20 for i in range(20)])
    assert len({tuple(starts(found, 4, step, until=100, seed=0)) for step in range(1, 11)}) > 5


def test_a_backward_curriculum_begins_one_stride_before_the_end():
    assert backward(10, []) == 9
    assert backward(10, [], stride=4) == 6
    assert backward(3, [], stride=5) == 0


def test_a_backward_curriculum_moves_back_when_it_succeeds():
    few, many = [0.0] * 13 + [1.0] * 3, [0.0] * 12 + [1.0] * 4  # of 16, a fifth is 3.2
    assert backward(10, few) == 9
    assert backward(10, many) == 8
    assert backward(10, [*few, 1.0]) == 8  # the last 16 hold four successes
    assert backward(10, many + few) == 8  # successes count for the start they were made from
    assert backward(10, [1.0] * 160) == 0


@given(
    st.integers(1, 30),
    st.lists(st.sampled_from([0.0, 1.0]), max_size=60),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_a_backward_curriculum_only_moves_back_and_resumes_exactly(length, results, stride, window):
    path = [
        backward(length, results[:done], stride=stride, window=window)
        for done in range(len(results) + 1)
    ]
    assert path == sorted(path, reverse=True)
    assert all(0 <= start < length for start in path)
    moves = sum(a != b for a, b in pairwise(path))
    assert moves <= len(results) // window


@pytest.mark.parametrize("options", [{"length": 0}, {"stride": 0}, {"window": 0}])
def test_numbers_below_one_are_errors(options):
    with pytest.raises(RecipeError, match="1 or more"):
        backward(**{"length": 5, "results": [], **options})


def test_the_rules_say_that_they_need_snapshots():
    where = "palaestra.learning.curricula.start_states"
    part = find(Kind.CURRICULUM, f"{where}:clustered")
    assert part.needs == {Need.SNAPSHOT, Need.PROGRESS}
    assert (part.name, part.status) == ("snapshot-clusters", Status.EXPERIMENTAL)
    part = find(Kind.CURRICULUM, f"{where}:backward")
    assert (part.name, part.needs) == ("backward", {Need.SNAPSHOT})
