"""Labels: replies judged alone, mismatched questions and fair weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.labels import (
    as_it_ended,
    balance,
    mismatched,
    step_labels,
    trajectory_labels,
    understood,
    voted,
)
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.stories import BROKEN, Turn, story, trained_words, words

FAILURE = Outcome.failure()


def lost():
    return story([("s0", "a0"), Turn("s1", "b1", valid=False), ("s1", "a1")], outcome=FAILURE)


def judged(labels):
    return [(trained_words(label.response[0]), label.desirable) for label in labels]


def test_the_first_judge_that_can_tell_labels_a_step():
    votes = {(lost().key, 0): [True, True, False], (lost().key, 1): [True] * 3}
    assert judged(step_labels([lost()], "policy", [understood])) == [("b1", False)]
    staged = step_labels([lost()], "policy", [understood, voted(votes), as_it_ended])
    assert judged(staged) == [("a0", True), ("b1", False), ("a1", False)]


def test_a_label_is_about_one_step_after_its_history():
    label = step_labels([lost()], "policy", [understood])[0]
    assert words(label.response[0]) == "s0 a0 s1 b1"


@pytest.mark.parametrize(
    ("cast", "quorum", "expected"),
    [
        ([True, True, False], 0.5, True),
        ([True, False, False], 0.5, False),
        ([True, False], 0.5, None),
        ([True, True, False], 0.7, None),
        ([], 0.5, None),
    ],
)
def test_votes_decide_by_their_quorum(cast, quorum, expected):
    found = step_labels([lost()], "policy", [voted({(lost().key, 0): cast}, quorum=quorum)])
    assert judged(found) == ([] if expected is None else [("a0", expected)])


def test_whole_rollouts_are_labelled_by_their_score():
    made = [story([("s0", "a0")], rooted=True), lost(), story([("s0", "a0")], outcome=BROKEN)]
    labels = trajectory_labels(made, "policy")
    assert [label.desirable for label in labels] == [True, False]
    assert list(labels[1].response) == rows_of(lost(), "policy")
    generous = trajectory_labels(made, "policy", least=0.0)
    assert [label.desirable for label in generous] == [True, True]


def test_mismatched_responses_answer_another_question():
    made = [story([("s0", "a0"), ("s2", "a1")]), story([("s1", "b0"), ("s3", "b1")], member=1)]
    labels = trajectory_labels(made, "policy")
    found = [row for response in mismatched(labels) for row in response]
    assert [words(row) for row in found] == ["s0 b0 s3 b1", "s1 a0 s2 a1"]
    assert [trained_words(row) for row in found] == ["b0 b1", "a0 a1"]
    for row in found:
        assert len(row.tokens) == len(row.mask) == len(row.logprobs) == len(row.calls)


@given(st.lists(st.sampled_from(["s0", "s1", "s2"]), min_size=2, max_size=8))
def test_every_response_is_mismatched_where_there_are_two_questions(states):
    made = [story([(state, f"a{n % 6}")], member=n) for n, state in enumerate(states)]
    labels = trajectory_labels(made, "policy")
    if len(set(states)) == 1:
        with pytest.raises(InputError, match="two different questions"):
            mismatched(labels)
        return
    for state, response in zip(states, mismatched(labels), strict=True):
        (row,) = response
        assert words(row).split()[0] == state
        origin = made[row.key.member]
        assert origin.calls[0].messages[0].text != state
        assert trained_words(row) == origin.calls[0].reply.text


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_balanced_weights_lie_in_the_recommended_range(good, bad):
    weight_good, weight_bad = balance(good, bad)
    assert 1 - 1e-9 <= weight_good * good / (weight_bad * bad) <= 4 / 3 + 1e-9
    assert min(weight_good, weight_bad) == 1
    if 1 <= good / bad <= 4 / 3:
        assert (weight_good, weight_bad) == (1, 1)


def test_one_kind_of_label_cannot_be_balanced():
    with pytest.raises(InputError, match="balanced"):
        balance(0, 3)
