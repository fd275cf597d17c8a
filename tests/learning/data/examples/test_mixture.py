"""Mixtures: two kinds of examples in an even ratio."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, system, user
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.mixture import conversation_example, mixed
from palaestra.learning.data.rows import Row
from tests.learning.data.examples.stories import RENDERER, trained_words, words


def examples(phase, count):
    return [
        Example(Row(Key(phase, n), [1, 2], [False, True], [0.0, 0.0], [-1, 0]))
        for n in range(count)
    ]


AGENT, GENERAL = examples("agent", 7), examples("general", 5)


def kinds(found):
    return [example.row.key.phase for example in found]


@given(st.integers(0, 100), st.integers(0, 9))
def test_every_prefix_keeps_the_ratio(percent, seed):
    found = kinds(mixed(AGENT, GENERAL, 120, share=percent / 100, seed=seed))
    for n in range(121):
        assert found[:n].count("agent") == n * percent // 100


def test_a_fifth_of_agent_examples_is_every_fifth_one():
    found = kinds(mixed(AGENT, GENERAL, 10, share=0.2, seed=0))
    assert [n for n, kind in enumerate(found) if kind == "agent"] == [4, 9]


@given(st.integers(0, 60), st.floats(0.05, 0.95), st.integers(0, 9))
def test_all_examples_of_a_kind_are_used_equally_often(count, share, seed):
    used = Counter(
        example.row.key for example in mixed(AGENT, GENERAL, count, share=share, seed=seed)
    )
    for pool in (AGENT, GENERAL):
        times = [used[example.row.key] for example in pool]
        assert max(times) - min(times) <= 1
        assert max(times) == math.ceil(sum(times) / len(pool))


def test_equal_seeds_mix_equally_and_others_do_not():
    first, again, other = (mixed(AGENT, GENERAL, 30, share=0.5, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first[:14] != first[14:28]  # and every round has its own order


@pytest.mark.parametrize(
    ("agent", "general", "share"),
    [(AGENT, GENERAL, 1.5), (AGENT, GENERAL, -0.1), ([], GENERAL, 0.5), (AGENT, [], 0.5)],
)
def test_impossible_mixtures_are_refused(agent, general, share):
    with pytest.raises(InputError, match="share"):
        mixed(agent, general, 10, share=share, seed=0)


def test_a_kind_without_a_share_may_be_empty():
    assert kinds(mixed([], GENERAL, 3, share=0, seed=0)) == ["general"] * 3
    assert kinds(mixed(AGENT, [], 3, share=1, seed=0)) == ["agent"] * 3


def test_a_general_conversation_trains_every_reply():
    conversation = [system("task"), user("who"), assistant("me"), user("s0"), assistant("a0")]
    example = conversation_example(conversation, RENDERER, Key("general", 0))
    assert words(example.row) == "task who me s0 a0"
    assert trained_words(example.row) == "me a0"
    numbers = [call for call, on in zip(example.row.calls, example.row.mask, strict=True) if on]
    assert numbers == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "conversation",
    [
        [],
        [user("who")],
        [assistant("me")],
        [user("who"), assistant("me"), user("s0")],
        [user("who"), assistant("me"), assistant("a0")],
    ],
)
def test_conversations_that_do_not_answer_each_other_are_refused(conversation):
    with pytest.raises(InputError, match="onversation"):
        conversation_example(conversation, RENDERER, Key("general", 0))
