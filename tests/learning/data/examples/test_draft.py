"""Drafts, replies and mistakes: what examples are made of."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Signals
from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.draft import Draft, only, without
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.mistakes import futile, misunderstood
from palaestra.learning.data.examples.replies import conversation, history, replies, reply_row
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.stories import Turn, story, trained_words, words

KEY = Key("rl/1", 0)


def sampled_call(call, tokens, **more):
    """A recorded reply of these tokens, under version 7 of the weights."""
    made = story([("s0", "a0")], version=7).calls[0]
    logprobs = tuple(-float(token) for token in tokens)
    return replace(made, index=call, completion=tuple(tokens), logprobs=logprobs, **more)


def drafted(*lengths):
    """A row of one context token and one reply of the given length, alternately."""
    draft = Draft(KEY)
    for call, length in enumerate(lengths):
        draft.add_context([100 + call])
        draft.add_reply(sampled_call(call, [call + 1] * length))
    return draft.row()


def test_a_draft_ends_with_its_last_trained_token():
    draft = Draft(KEY)
    draft.add_context([1, 2])
    draft.add_reply(sampled_call(4, [3, 4]))
    draft.add_new_reply([8], 5)
    draft.add_reply(sampled_call(6, [5]), trained=False)
    row = draft.row()
    assert row.tokens == [1, 2, 3, 4, 8]
    assert row.mask == [False, False, True, True, True]
    assert row.logprobs == pytest.approx([0, 0, -3, -4, math.nan], nan_ok=True)
    assert row.calls == [-1, -1, 4, 4, 5]
    assert row.versions == [0, 0, 7, 7, 0]


def test_a_draft_can_number_its_replies_again():
    draft = Draft(KEY)
    draft.add_reply(sampled_call(4, [3]), number=0)
    assert (draft.row().calls, draft.row().versions) == ([0], [7])


def test_a_draft_that_trains_nothing_is_no_row():
    draft = Draft(KEY)
    draft.add_context([1, 2])
    assert draft.row() is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_masking_calls_and_keeping_only_the_others_are_the_same(lengths, calls):
    row = drafted(*lengths)
    others = set(range(len(lengths))) - calls
    masked = without(row, calls)
    assert masked == only(row, others)
    kept = sum(lengths[call] for call in others)
    assert (masked.trained if masked else 0) == kept
    if masked:
        n = len(masked.tokens)
        assert masked.tokens == row.tokens[:n]
        assert masked.mask[-1]
        assert [v != 0 for v in masked.versions] == masked.mask
        for on, lp, call in zip(masked.mask, masked.logprobs, masked.calls, strict=True):
            assert (lp, call in others) == ((-1.0 - call, True) if on else (0.0, False))


def test_an_examples_advantage_is_its_weight_where_it_trains():
    row = drafted(1, 2)
    assert Example(row, 0.5).advantage == [0, 0.5, 0, 0.5, 0.5]


def test_replies_know_their_actions_and_the_state_they_were_said_in():
    made = story(
        [
            Turn("s0", "t0", acts=False),
            Turn("s0", "a0"),
            Turn("s1", "a1"),
            Turn("s2", "t1", acts=False),
        ]
    )
    found = replies(made, "policy")
    assert [reply.state for reply in found] == ["s0", "s0", "s1", None]
    assert [reply.opens for reply in found] == [True, False, True, True]
    assert [len(reply.steps) for reply in found] == [0, 1, 1, 0]
    assert replies(made, "nobody") == []


def test_a_conversation_only_grows():
    assert len(conversation(story([("s0", "a0"), ("s1", "a1")]), "policy")) == 2
    with pytest.raises(InputError, match="only grow"):
        conversation(story([("s0", "a0"), ("s1", "a1")], rooted=True), "policy")


def test_the_row_of_one_reply_trains_it_alone_after_its_history():
    made = story([("s0", "a0"), ("s1", "a1 a2"), ("s2", "a3")])
    call = made.calls[1]
    row = reply_row(made.key, history(made.graph, call), call)
    (whole,) = rows_of(made, "policy")
    assert row == only(whole, {1})
    assert (words(row), trained_words(row)) == ("s0 a0 s1 a1 a2", "a1 a2")


def test_a_reply_without_tokens_has_no_row():
    made = story([("s0", "a0")])
    call = replace(made.calls[0], completion=(), logprobs=())
    with pytest.raises(ValueError, match="no token ids"):
        reply_row(made.key, [1], call)


def test_misunderstood_actions_are_mistakes_together_with_their_thoughts():
    made = story(
        [
            Turn("s0", "a0"),
            Turn("s1", "t1", acts=False),
            Turn("s1", "b1", valid=False),
            Turn("s1", "a1"),
        ]
    )
    assert misunderstood(made, "policy") == {1, 2}


def test_actions_that_leave_the_state_as_it_was_are_futile():
    made = story([("s0", "a0"), ("s1", "b1"), ("s1", "t1 a1"), ("s2", "a2")])
    assert futile(made, "policy") == {1}
    blind = [replace(step, before=Signals()) for step in made.steps]
    assert futile(replace(made, steps=tuple(blind)), "policy") == set()
