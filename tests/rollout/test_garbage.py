"""Thresholds of the garbage collector during rollouts, and after the last of them."""

import gc
from collections.abc import Iterator

import pytest

from palaestra.rollout.garbage import THRESHOLDS, rarely_collected


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_overlapping_rollouts_give_the_programs_thresholds_back() -> None:
    gc.set_threshold(700, 10, 10)
    first, second = rarely_collected(), rarely_collected()
    first.__enter__()
    assert gc.get_threshold() == THRESHOLDS
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == THRESHOLDS
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 10, 10)])
def test_a_program_that_collects_even_less_keeps_its_thresholds(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rarely_collected():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
