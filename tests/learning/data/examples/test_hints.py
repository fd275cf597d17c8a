"""Hints: what a solution did from the step on at which another attempt failed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Signals
from palaestra.core.message import user
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.distillation import taught
from palaestra.learning.data.examples.hints import stated_hints, step_hints
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.stories import BROKEN, RENDERER, Turn, story, words

FAILED = Outcome.failure()
SOLVED = story([("s0", "a0"), ("s1", "a1"), ("s2", "a2")])


def test_hints_begin_at_the_failing_step() -> None:
    failed = story([("s0", "a0"), ("s1", "b1"), ("s3", "b3")], outcome=FAILED, member=1)
    assert step_hints([failed, SOLVED]) == {"train/0": {"s1": "\nHint: a1.", "s2": "\nHint: a2."}}


def test_the_earliest_failing_step_and_the_shortest_solution_count() -> None:
    long = story([("s0", "t0"), ("s0", "a0"), ("s1", "a1"), ("s2", "a2")], member=1)
    failed = [
        story([("s0", "a0"), ("s1", "b1")], outcome=FAILED, member=2),
        story([("s2", "b2")], outcome=FAILED, member=3),
    ]
    assert set(step_hints([long, SOLVED, *failed])["train/0"]) == {"s1", "s2"}
    assert step_hints([long, failed[1]])["train/0"] == {"s2": "\nHint: a2."}


def test_where_a_solution_returns_its_last_action_counts() -> None:
    solved = story([("s0", "t0"), ("s1", "b1"), ("s0", "a0"), ("s2", "a2")])
    failed = story([("s0", "t0"), ("s3", "b3")], outcome=FAILED, member=1)
    assert step_hints([solved, failed])["train/0"] == {"s0": "\nHint: a0.", "s2": "\nHint: a2."}


def test_nothing_is_hinted_without_a_solution_or_a_failing_step() -> None:
    failed = story([("s0", "b0")], outcome=FAILED, member=1)
    assert step_hints([failed]) == step_hints([SOLVED]) == {}
    cut = story([("s0", "a0")], outcome=FAILED, member=1)  # went right as far as it got
    assert step_hints([SOLVED, cut]) == {}
    assert step_hints([replace(SOLVED, outcome=BROKEN), failed]) == {}
    other = story([("s0", "b0")], outcome=FAILED, task="train/1")
    assert step_hints([SOLVED, other]) == {}
    blind = replace(failed, steps=tuple(replace(s, before=Signals()) for s in failed.steps))
    assert step_hints([SOLVED, blind]) == {}


ATTEMPTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["s0", "s1", "s2"]), st.sampled_from(["a0", "b1"]))),
        st.booleans(),
    ),
    max_size=5,
)


@given(ATTEMPTS)
def test_every_hint_is_what_a_solution_did_there(attempts) -> None:
    episodes = [
        story(turns, outcome=None if solved else FAILED, member=n)
        for n, (turns, solved) in enumerate(attempts)
    ]
    did = {
        (step.before.state_key, f"\nHint: {step.action.text}.")
        for episode in episodes
        if episode.outcome.solved
        for step in episode.steps
    }
    for hints in step_hints(episodes).values():
        assert set(hints.items()) <= did


def hinted():
    """The second of three prompts holds a hint of this task, as a session records it."""
    return story([Turn("s0", "a0"), Turn("s1", "a1", prompt=(user("s1\nhint"),)), Turn("s2", "a2")])


def test_the_hints_that_stand_in_prompts_are_found_the_longest_first() -> None:
    known = {"train/0": {"s1": "\nhint", "s2": "\nhint never stated"}, "train/1": {"s0": "s0"}}
    assert stated_hints(hinted(), known) == ["\nhint"]
    longer = {"train/0": {"s0": "s1", "s1": "s1\nhint"}}
    assert stated_hints(hinted(), longer) == ["s1\nhint", "s1"]


def test_the_teacher_reads_hints_and_the_student_does_not() -> None:
    plain = story([("s0", "b0")], member=1)
    found = taught(
        [hinted(), plain],
        "policy",
        RENDERER,
        lambda e: stated_hints(e, {"train/0": {"s1": "\nhint"}}),
    )
    assert [words(one.row) for one in found] == ["s0 a0 s1 a1 s2 a2", "s0 b0"]
    assert [words(one.teacher) for one in found] == ["s0 a0 s1 hint a1 s2 a2", "s0 b0"]
    assert [one.teacher for one in found] == [
        *rows_of(hinted(), "policy"),
        *rows_of(plain, "policy"),
    ]
    assert found[1].row == found[1].teacher
