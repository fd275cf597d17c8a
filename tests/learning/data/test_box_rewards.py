"""Rewards of boxes: by hand, and which sizes they drive predictions to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.learning.data.box_rewards import (
    Box,
    Reward,
    combined,
    expected_reward,
    favoured_size,
    hit,
    iou,
    size_agreement,
)

TRUE = Box(0, 0, 2, 4)
SIZES = [2 ** (n / 8) for n in range(-16, 9)]  # 1/4 to 2
ALL = combined(hit, iou, size_agreement)

sides = st.floats(0.1, 10)
boxes = st.builds(Box, st.floats(-5, 5), st.floats(-5, 5), sides, sides)


@pytest.mark.parametrize(
    ("predicted", "hits", "overlap", "agreement"),
    [
        (TRUE, 1, 1, 1),
        (Box(1, 0, 2, 4), 1, 1 / 3, 1),  # half of each is shared
        (Box(0, 0, 4, 4), 1, 1 / 2, 4 / (2 + 0.5 + 1 + 1)),
        (Box(0, 0, 1, 2), 1, 1 / 4, 4 / (0.5 + 2 + 0.5 + 2)),
        (Box(9, 0, 2, 4), 0, 0, 1),
    ],
)
def test_rewards_by_hand(predicted: Box, hits: float, overlap: float, agreement: float) -> None:
    assert hit(predicted, TRUE) == hits
    assert iou(predicted, TRUE) == pytest.approx(overlap)
    assert size_agreement(predicted, TRUE) == pytest.approx(agreement)


@given(boxes, boxes)
def test_rewards_lie_between_0_and_1_and_overlap_is_symmetric(one: Box, other: Box) -> None:
    for reward in (hit, iou, size_agreement, ALL):
        assert 0 <= reward(one, other) <= 1 + 1e-9
    assert iou(one, other) == pytest.approx(iou(other, one))


@given(boxes, st.floats(1.01, 5))
def test_a_box_that_is_too_large_agrees_as_little_as_one_too_small(box: Box, factor: float) -> None:
    large = Box(box.x, box.y, box.width * factor, box.height * factor)
    small = Box(box.x, box.y, box.width / factor, box.height / factor)
    assert size_agreement(large, box) == pytest.approx(size_agreement(small, box))
    assert size_agreement(large, box) < 1


@pytest.mark.parametrize("scatter", [0.4, 0.5])
def test_overlap_inflates_boxes_whose_centres_scatter_and_the_size_reward_limits_that(
    scatter: float,
) -> None:
    grown = favoured_size(iou, lambda size: scatter, SIZES)
    assert grown > 1.05
    assert favoured_size(size_agreement, lambda size: scatter, SIZES) == 1
    assert 1 <= favoured_size(ALL, lambda size: scatter, SIZES) < grown


def test_hits_alone_leave_the_size_of_boxes_open() -> None:
    found = {expected_reward(hit, size, 0.3) for size in SIZES}
    assert len(found) == 1


def test_hits_shrink_boxes_where_the_unsure_policy_also_says_larger_ones() -> None:
    def unsure(size: float) -> float:
        return 0.5 * size

    assert favoured_size(hit, unsure, SIZES) == SIZES[0]  # without a limit
    unlimited = favoured_size(combined(hit, iou), unsure, SIZES)
    assert SIZES[0] < unlimited < favoured_size(ALL, unsure, SIZES) < 1


def test_equal_rewards_favour_the_smallest_size() -> None:
    even: Reward = lambda predicted, true: 0.5  # noqa: E731
    assert favoured_size(even, lambda size: 0.3, SIZES) == SIZES[0]
