"""Micro-batches for several processes: nothing is lost, nothing is too large, all have work."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.compute.even_batches import even_batches, tokens_run
from palaestra.learning.compute.packing import Trained, micro_batches
from tests.learning.made import tiny

NETWORK = tiny()


@st.composite
def batches(draw: st.DrawFn) -> list[Trained]:
    """Rows of any length, some of which begin alike or belong to one rollout."""
    beginnings = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1))
    found = []
    for _ in range(draw(st.integers(0, 24))):
        begun = draw(st.sampled_from(beginnings))
        tokens = [*begun, *draw(st.lists(st.integers(0, 23), min_size=1, max_size=20))]
        mask = [False] * (len(tokens) - 1) + [True]
        found.append(Trained(tokens, mask, rollout=draw(st.integers(0, 12))))
    return found


@settings(max_examples=200)
@given(rows=batches(), most=st.integers(1, 120), parts=st.integers(1, 5), whole=st.booleans())
def test_every_row_is_in_one_group_that_fits(
    rows: list[Trained], most: int, parts: int, whole: bool
) -> None:
    groups = even_batches(rows, most, parts, NETWORK, whole_rollouts=whole)
    assert sorted(id(row) for group in groups for row in group) == sorted(map(id, rows))
    for group in groups:
        units = {row.rollout if whole else id(row) for row in group}
        assert len(units) == 1 or tokens_run(group, alone=False) <= most
    if whole:
        where = [{row.rollout for row in group} for group in groups]
        assert sum(map(len, where)) == len({row.rollout for row in rows})


@settings(max_examples=200)
@given(rows=batches(), most=st.integers(1, 120), parts=st.integers(1, 5))
def test_no_more_rounds_are_needed_than_without_evening_out(
    rows: list[Trained], most: int, parts: int
) -> None:
    plain = micro_batches(rows, most, NETWORK)
    even = even_batches(rows, most, parts, NETWORK)
    assert -(-len(even) // parts) == -(-len(plain) // parts)
    assert len(even) >= len(plain)
    sizes = [tokens_run(group, alone=False) for group in even]
    assert sizes == sorted(sizes, reverse=True)


def test_a_batch_that_fits_into_one_pass_is_divided_among_all() -> None:
    rows = [Trained([number] * 10, [False] * 9 + [True]) for number in range(8)]
    groups = even_batches(rows, 1000, 4, NETWORK)
    assert [len(group) for group in groups] == [2, 2, 2, 2]


def test_one_part_changes_nothing_but_the_order() -> None:
    rows = [
        Trained([number] * (3 + number), [False, False, *[True] * (1 + number)])
        for number in range(8)
    ]
    ours, plain = even_batches(rows, 20, 1, NETWORK), micro_batches(rows, 20, NETWORK)
    assert sorted(map(len, ours)) == sorted(map(len, plain))
