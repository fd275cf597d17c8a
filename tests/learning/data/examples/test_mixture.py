"""Mixtures: agent examples and general text in an exact ratio of trained tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, system, user
from palaestra.learning.data.examples.conversations import conversation_example
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.mixture import GENERAL, mixed
from palaestra.learning.data.rows import Row
from tests.learning.data.examples.stories import RENDERER, trained_words, words

TEXTS = [list(range(100, 100 + n)) for n in (1, 2, 5, 40)]  # their tokens say where they stand


def batch_of(*lengths):
    """A batch of agent examples that train so many tokens each."""
    return [
        Example(Row(Key("agent", n), [1] * (k + 1), [False] + [True] * k, [0.0] * (k + 1), []))
        for n, k in enumerate(lengths)
    ]


def general(batch):
    return [example.row for example in batch if example.row.key.phase == GENERAL]


BATCHES = st.lists(st.lists(st.integers(1, 30), max_size=4), max_size=12)


@given(BATCHES, st.integers(1, 99), st.integers(2, 16), st.integers(0, 9))
def test_every_prefix_keeps_the_ratio(lengths, percent, limit, seed):
    batches = [batch_of(*each) for each in lengths]
    found = mixed(batches, TEXTS, share=percent / 100, limit=limit, seed=seed)
    agent = text = 0
    for before, after in zip(batches, found, strict=True):
        assert after[: len(before)] == before
        agent += sum(example.row.trained for example in before)
        text += sum(row.trained for row in general(after))
        # exact: one token more would be more than the share
        assert text * 100 <= percent * (agent + text)
        assert (text + 1) * 100 > percent * (agent + text + 1)


@given(BATCHES, st.integers(2, 16), st.integers(0, 9))
def test_every_text_is_learned_token_by_token_as_often_as_the_others(lengths, limit, seed):
    batches = [batch_of(*each) for each in lengths]
    rows = [
        row
        for one in mixed(batches, TEXTS, share=0.5, limit=limit, seed=seed)
        for row in general(one)
    ]
    assert all(2 <= len(row.tokens) <= limit for row in rows)
    assert all(row.mask == [False] + [True] * (len(row.tokens) - 1) for row in rows)
    learned = [token for row in rows for token in row.tokens[1:]]
    longest = [learned.count(token) for token in range(105, 140)]  # in one of the texts only
    assert max(longest) - min(longest) <= 1
    pairs = {pair for row in rows for pair in zip(row.tokens, row.tokens[1:], strict=False)}
    assert all(after == before + 1 for before, after in pairs)  # no text runs into the next


def test_a_fifth_by_hand():
    found = mixed([batch_of(3), batch_of(4, 1), batch_of(8)], TEXTS[3:], share=0.2, limit=9, seed=0)
    # 3 agent tokens: 3/4 of a general one is due; 8: 2; 16: 4
    assert [[row.tokens for row in general(one)] for one in found] == [
        [], [[100, 101, 102]], [[102, 103, 104]],
    ]  # fmt: skip


def test_equal_seeds_mix_equally_and_others_do_not():
    batches = [batch_of(20, 20)] * 3
    one, again, other = (mixed(batches, TEXTS, share=0.5, limit=8, seed=s) for s in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5])
def test_a_share_that_leaves_nothing_of_one_kind_is_refused(share):
    with pytest.raises(InputError, match="give one between"):
        mixed([batch_of(1)], TEXTS, share=share, limit=8, seed=0)


def test_texts_without_a_token_to_learn_are_refused():
    with pytest.raises(InputError, match="no general text"):
        mixed([batch_of(1)], [[7]], share=0.5, limit=8, seed=0)


def test_a_general_conversation_trains_every_reply():
    conversation = [system("task"), user("who"), assistant("me"), user("s0"), assistant("a0")]
    example = conversation_example(conversation, RENDERER, Key("general", 0))
    assert words(example.row) == "task who me s0 a0"
    assert trained_words(example.row) == "me a0"
    numbers = [call for call, on in zip(example.row.calls, example.row.mask, strict=True) if on]
    assert numbers == [0, 0, 1, 1]
