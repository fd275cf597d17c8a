"""Groups of tasks are dealt out whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.dealt_splits import deal
from palaestra.core.task import Split

GROUPS = st.dictionaries(st.integers(0, 60), st.sampled_from("abcdefgh"), min_size=3)


@given(GROUPS)
def test_each_task_is_in_one_split_and_no_group_in_two(groups: dict[int, str]) -> None:
    splits = deal(groups)
    assert sorted(number for found in splits.values() for number in found) == sorted(groups)
    assert set(splits) == set(Split)
    if len(set(groups.values())) >= len(Split):
        dealt = [{groups[number] for number in found} for found in splits.values()]
        assert sum(map(len, dealt)) == len(set.union(*dealt))


def test_two_groups_are_too_few_so_their_tasks_are_dealt_singly() -> None:
    splits = deal({0: "a", 1: "a", 2: "b", 3: "b"})
    assert splits == {Split.TEST: [0], Split.VALIDATION: [1], Split.TRAIN: [2, 3]}
