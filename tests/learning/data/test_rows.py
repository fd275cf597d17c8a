"""Rows read off message graphs: each sampled token once, and nothing else."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.message import assistant
from palaestra.core.model import adapted
from palaestra.learning.data.rows import rows_of
from tests.learning.made import call, episode

PLANNER = adapted("policy", "planner")


@st.composite
def branching(draw):
    """Calls that continue, fork and restart at random; no token occurs twice.

    They are of two policies, one of them with two adapters.
    """
    fresh = itertools.count()
    calls = []
    for index in range(draw(st.integers(1, 10))):
        parent = draw(st.one_of(st.none(), st.sampled_from(range(index)))) if index else None
        prompt = [next(fresh) for _ in range(draw(st.integers(1, 4)))]
        completion = [next(fresh) for _ in range(draw(st.integers(1, 4)))]
        policy = draw(st.sampled_from(["policy", PLANNER, "other"]))
        logprobs = [-float(token) for token in completion]
        calls.append(call(index, parent, prompt, completion, policy=policy, logprobs=logprobs))
    return episode(calls)


@given(branching())
def test_every_sampled_token_is_trained_once_and_nothing_else_is(made):
    rows = rows_of(made, "policy")
    trained = [t for r in rows for t, on in zip(r.tokens, r.mask, strict=True) if on]
    sampled = [t for c in made.calls if c.policy != "other" for t in c.completion]
    assert sorted(trained) == sorted(sampled)


@given(branching())
def test_a_row_trains_one_adapter(made):
    """Also where several replied within one conversation: the others' replies are context."""
    for row in rows_of(made, "policy"):
        assert len({made.calls[n].policy for n in row.calls if n >= 0}) == 1


@given(branching())
def test_every_row_is_a_path_with_its_own_log_probabilities(made):
    paths = [made.graph.tokens(leaf) for leaf in made.graph.leaves()]
    speaker = {t: c.index for c in made.calls for t in c.completion}
    for row in rows_of(made, "policy"):
        n = len(row.tokens)
        assert any(path[:n] == row.tokens for path in paths)
        assert len(row.mask) == len(row.logprobs) == len(row.calls) == n
        assert row.mask[-1]
        for token, on, lp, replied_by in zip(
            row.tokens, row.mask, row.logprobs, row.calls, strict=True
        ):
            assert lp == (-float(token) if on else 0)
            assert replied_by == (speaker[token] if on else -1)


def test_forced_tokens_are_context():
    """The engine wrote them: nothing that they say is learned, and what follows them is."""
    forced = replace(call(0, None, [1], [2, 3, 4], logprobs=[-1.0, 0.0, -2.0]), forced=(1,))
    (row,) = rows_of(episode([forced, call(1, 0, [5], [6])]), "policy")
    assert row.tokens == [1, 2, 3, 4, 5, 6]
    assert row.mask == [False, True, False, True, False, True]
    assert row.logprobs[:4] == [0.0, -1.0, 0.0, -2.0]
    assert row.calls == [-1, 0, -1, 0, -1, 1]


def test_forced_tokens_outside_the_reply_are_refused():
    with pytest.raises(InputError, match=r"forced ones at \[3\]; record positions within"):
        rows_of(episode([replace(call(0, None, [1], [2, 3, 4]), forced=(3,))]), "policy")


def test_a_conversation_that_only_grows_is_one_row():
    made = episode([call(0, None, [1, 2], [3]), call(1, 0, [4], [5, 6])])
    (row,) = rows_of(made, "policy")
    assert row.tokens == [1, 2, 3, 4, 5, 6]
    assert row.mask == [False, False, True, False, True, True]


def test_a_shared_past_is_trained_in_the_first_branch_only():
    made = episode([call(0, None, [1], [2]), call(1, 0, [3], [4]), call(2, 0, [5], [6])])
    first, second = rows_of(made, "policy")
    assert (first.tokens, first.mask) == ([1, 2, 3, 4], [False, True, False, True])
    assert (second.tokens, second.mask) == ([1, 2, 5, 6], [False, False, False, True])


def test_a_policy_that_said_nothing_has_no_rows():
    assert rows_of(episode([call(0, None, [1], [2], policy="other")]), "policy") == []
    assert rows_of(episode(), "policy") == []


def test_words_without_tokens_cannot_be_trained():
    with pytest.raises(InputError, match=r"rl/1/0\.0: call 0 holds no token ids"):
        rows_of(episode([call(0, None, [], [])]), "policy")


def test_a_call_in_which_nothing_was_reported_trains_nothing_and_moves_nothing():
    silent = replace(call(0, None, [1], []), reply=assistant(""))
    made = episode([silent, call(1, None, [2], [3, 4], logprobs=[-0.5, -0.25])])
    (row,) = rows_of(made, "policy")
    assert (row.tokens, row.mask) == ([2, 3, 4], [False, True, True])
    assert (row.logprobs, row.calls) == ([0, -0.5, -0.25], [-1, 1, 1])


def test_unknown_log_probabilities_are_no_numbers():
    made = episode([call(0, None, [1], [2, 3], logprobs=[]), call(1, 0, [4], [5])])
    (row,) = rows_of(made, "policy")
    assert row.logprobs == pytest.approx([0, math.nan, math.nan, 0, -1], nan_ok=True)


def test_a_call_with_log_probabilities_of_some_of_its_tokens_is_refused():
    made = episode([call(0, None, [1], [2, 3], logprobs=[-1.0])])
    with pytest.raises(InputError, match="call 0 has 2 sampled tokens, but 1 log-probabilities"):
        rows_of(made, "policy")
