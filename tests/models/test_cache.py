"""The cache: found by tokens alone, and never the wrong ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.models.cache import KeyValueCache, common_prefix
from tests.learning.made import tiny

tokens = st.lists(st.integers(0, 2), max_size=12)


def cache_of(slots: int, limit: int = 64) -> KeyValueCache:
    return KeyValueCache(tiny(), slots, limit)


def mark(cache: KeyValueCache, slot, text: list[int]) -> None:
    """Write as keys and values a number that tells the whole prefix; then let the slot go."""
    slot.tokens = list(text)
    for i in range(len(text)):
        cache.keys[:, slot.index, :, i] = _told(text, i)
        cache.values[:, slot.index, :, i] = -_told(text, i)
    slot.busy = False


def _told(text: list[int], i: int) -> float:
    return float(sum((t + 1) * 4**k for k, t in enumerate(text[: min(i + 1, 11)])))


@given(tokens, tokens)
def test_the_common_prefix_is_found(a, b):
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=11), max_size=10), st.integers(1, 3)
)
def test_a_slot_always_holds_the_keys_and_values_of_its_tokens(texts, slots):
    cache = cache_of(slots)
    for text in texts:
        best, _ = cache.longest_known(text)
        slot = cache.acquire(text)
        assert slot is not None
        n = len(slot.tokens)
        assert slot.tokens == text[:n]
        assert n < len(text)
        assert n <= best
        for i in range(n):
            assert bool((cache.keys[:, slot.index, :, i] == _told(text, i)).all())
            assert bool((cache.values[:, slot.index, :, i] == -_told(text, i)).all())
        mark(cache, slot, text)


def test_a_continued_conversation_gets_its_own_slot():
    cache = cache_of(3)
    slot = cache.acquire([1, 2, 3])
    mark(cache, slot, [1, 2, 3])
    assert cache.acquire([1, 2, 3, 4]) is slot


def test_a_fork_copies_and_leaves_the_original_alone():
    cache = cache_of(2)
    slot = cache.acquire([1, 2, 3])
    mark(cache, slot, [1, 2, 3])
    fork = cache.acquire([1, 2, 9])
    assert fork is not slot
    assert (fork.tokens, slot.tokens) == ([1, 2], [1, 2, 3])


def test_the_slot_that_lay_idle_longest_is_evicted():
    cache = cache_of(2)
    first = cache.acquire([1])
    mark(cache, first, [1])
    second = cache.acquire([2])
    mark(cache, second, [2])
    assert cache.acquire([0]) is first


def test_busy_slots_are_not_given_away():
    cache = cache_of(1)
    assert cache.acquire([1, 2]) is not None
    assert cache.acquire([1, 2, 3]) is None


def test_growing_keeps_what_is_there_and_stops_at_the_limit():
    cache = KeyValueCache(tiny(), 2, 600)
    slot = cache.acquire([1, 2, 0])
    mark(cache, slot, [1, 2, 0])
    before = cache.keys[:, :, :, :3].clone()
    cache.reserve(257)
    assert cache.keys.shape[3] == cache.values.shape[3] == 512
    cache.reserve(513)
    assert cache.keys.shape[3] == 600
    assert torch.equal(cache.keys[:, :, :, :3], before)


def test_clearing_forgets_all_and_refuses_while_in_use():
    cache = cache_of(1)
    slot = cache.acquire([1, 2])
    with pytest.raises(RuntimeError, match="weights changed"):
        cache.clear()
    mark(cache, slot, [1, 2])
    cache.clear()
    assert cache.longest_known([1, 2]) == (0, None)
