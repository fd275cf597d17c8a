"""Traces of a search: what was tried and not taken is left out, all else stays as recorded."""

from __future__ import annotations

from dataclasses import replace

from palaestra.learning.data.examples.search_traces import without_search
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.stories import story, trained_words, words

PLAIN = story([("s0", "a0"), ("s1", "a1")])


def searched():
    """As PLAIN, but each reply has a sibling that was sampled before it and not taken."""
    first, second = PLAIN.calls
    other = story([("s0", "b0"), ("s1", "b1")]).calls
    calls = (
        replace(other[0], index=0),
        replace(first, index=1),
        replace(other[1], index=2, parent=1),
        replace(second, index=3, parent=1),
    )
    steps = [
        replace(step, call=call, calls_made=call + 1)
        for step, call in zip(PLAIN.steps, (1, 3), strict=True)
    ]
    return replace(PLAIN, calls=calls, steps=tuple(steps))


def test_the_path_that_was_taken_is_the_episode_without_the_search() -> None:
    assert len(rows_of(searched(), "policy")) == 3
    found = without_search(searched())
    assert found.calls == PLAIN.calls
    assert [step.call for step in found.steps] == [0, 1]
    assert [step.calls_before for step in found.steps] == [1, 2]
    (row,) = rows_of(found, "policy")
    assert row == rows_of(PLAIN, "policy")[0]
    assert (words(row), trained_words(row)) == ("s0 a0 s1 a1", "a0 a1")


def test_of_equal_replies_the_one_that_the_conversation_goes_on_from_stands_for_both() -> None:
    first, second = PLAIN.calls
    calls = (first, replace(first, index=1), replace(second, index=2, parent=1))
    steps = [
        replace(step, call=call, calls_made=made)
        for step, call, made in zip(PLAIN.steps, (0, 2), (2, 3), strict=True)
    ]
    found = without_search(replace(PLAIN, calls=calls, steps=tuple(steps)))
    assert found.calls == PLAIN.calls
    assert [step.call for step in found.steps] == [0, 1]


def test_thoughts_before_an_action_stay() -> None:
    made = story([("s0", "t0"), ("s1", "a1")])
    acted = replace(made, steps=(made.steps[1],))
    assert without_search(acted).calls == made.calls
    assert without_search(replace(made, steps=())).calls == ()
