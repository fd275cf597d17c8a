"""The key-value cache: lookups by tokens alone, correct entries, a fixed budget."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.models.local.cache import KeyValueCache, Past
from tests.learning.made import tiny

BLOCK = 3
NETWORK = tiny()
texts = st.lists(st.integers(0, 2), min_size=1, max_size=11)


def cache_of(blocks: int) -> KeyValueCache:
    config = NETWORK.config
    size = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * BLOCK * 4
    return KeyValueCache(NETWORK, memory=size * blocks + size - 1, context=11, block=BLOCK)


def go_on(cache: KeyValueCache, past: Past, text: list[int]) -> None:
    """Write as keys and values a number that identifies the whole prefix."""
    for i in range(past.length, len(text)):
        block, place = past.blocks[i // BLOCK], i % BLOCK
        for keys, values in zip(cache.keys, cache.values, strict=True):
            keys[block, :, place], values[block, :, place] = _shown(text, i), -_shown(text, i)
    cache.commit(past, text[past.length :])


def holds(cache: KeyValueCache, past: Past, text: list[int]) -> bool:
    """Return whether the request's blocks hold the keys and values of its tokens."""
    return all(
        bool((store[past.blocks[i // BLOCK], :, i % BLOCK] == sign * _shown(text, i)).all())
        for i in range(past.length)
        for sign, stores in ((1, cache.keys), (-1, cache.values))
        for store in stores
    )


def _shown(text: list[int], i: int) -> float:
    return float(sum((t + 1) * 4**k for k, t in enumerate(text[: i + 1])))


@given(st.lists(st.tuples(texts, st.booleans(), st.integers(0, 3)), max_size=14), st.integers(4, 9))
def test_a_request_always_holds_the_keys_and_values_of_its_tokens(events, blocks):
    cache = cache_of(blocks)
    held: list[tuple[Past, list[int]]] = []
    for text, stays, leaving in events:
        known = cache.known(text[:-1])
        past = cache.acquire(text)
        if past is None:
            assert held  # alone, every request of up to 11 tokens fits
        else:
            assert past.length <= known < len(text)
            assert len(past.blocks) == -(-len(text) // BLOCK)
            assert holds(cache, past, text)
            go_on(cache, past, text)
            held.append((past, text))
        for other, its in held:
            assert other.length == len(its)
            assert holds(cache, other, its)
        in_use = {block for other, _ in held for block in other.blocks}
        assert len(in_use) + cache.available == blocks
        if held and not stays:
            cache.release(held.pop(leaving % len(held))[0])
    for other, _ in held:
        cache.release(other)
    assert cache.available == blocks


def test_whole_blocks_are_shared_and_a_fork_copies_only_the_one_it_parts_in():
    cache = cache_of(8)
    first = cache.acquire([1, 1, 1, 2, 2, 2, 0, 0])
    go_on(cache, first, [1, 1, 1, 2, 2, 2, 0, 0])
    fork = cache.acquire([1, 1, 1, 2, 2, 2, 0, 1])
    assert (fork.length, first.length) == (7, 8)
    assert fork.blocks[:2] == first.blocks[:2]
    assert fork.blocks[2] != first.blocks[2]
    go_on(cache, fork, [1, 1, 1, 2, 2, 2, 0, 1])
    assert holds(cache, first, [1, 1, 1, 2, 2, 2, 0, 0])
    assert cache.available == 8 - 4


def test_a_conversation_goes_on_in_its_own_blocks():
    cache = cache_of(4)
    past = cache.acquire([1, 2, 0, 1])
    go_on(cache, past, [1, 2, 0, 1])
    before = list(past.blocks)
    cache.release(past)
    again = cache.acquire([1, 2, 0, 1, 2])
    assert (again.blocks, again.length) == (before, 4)


def test_growth_is_refused_whole_when_the_blocks_are_held():
    cache = cache_of(4)
    one, other = cache.acquire([1] * 4), cache.acquire([2] * 3)
    assert not cache.reserve(one, 11)
    assert len(one.blocks) == 2
    assert cache.acquire([0, 0, 0, 0]) is None
    assert cache.acquire([0], spare=1) is None
    cache.release(other)
    assert cache.reserve(one, 11)
    assert cache.available == 0


def test_memory_is_set_aside_once_and_stays_within_the_budget():
    cache = cache_of(5)
    stored = sum(store.numel() * store.element_size() for store in (*cache.keys, *cache.values))
    assert stored == 5 * cache.block_bytes
    assert all(bool((store == 0).all()) for store in cache.keys)


def test_a_budget_below_one_conversation_is_an_error_that_explains_how_much_is_needed():
    with pytest.raises(InputError, match=r"holds 9 tokens, less than one conversation of 11; give"):
        cache_of(3)


def test_after_clearing_nothing_is_known_and_what_was_held_is_not_found_again():
    cache = cache_of(5)
    text = [1, 2, 0, 1]
    past = cache.acquire(text)
    go_on(cache, past, text)
    cache.clear()
    assert cache.known(text) == 0
    assert holds(cache, past, text)  # its request still uses it
    cache.release(past)
    assert cache.known(text) == 0
    assert cache.available == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_the_memory_lies_there():
    network = tiny().cuda()
    cache = KeyValueCache(network, memory=2**20, context=11, block=BLOCK)
    assert cache.keys[0].is_cuda


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count what is unused")
def test_a_process_with_caches_larger_than_the_memory_can_fork() -> None:
    program = (
        "import os, torch\n"
        "from palaestra.models.local.cache import KeyValueCache\n"
        "from tests.learning.made import tiny\n"
        "half = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2\n"
        "kept = [KeyValueCache(tiny(), memory=half, context=11, block=1024) for _ in range(4)]\n"
        "child = os.fork()\n"
        "if not child: os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
