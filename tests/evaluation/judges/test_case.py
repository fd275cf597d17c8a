"""Cases: judges read what the agent saw and did, and nothing that gives the truth away."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.outcome import Outcome
from palaestra.evaluation.judges.case import FILLER, Case, Line, case_of, padded, shortened, told
from tests.evaluation.attribution.worlds import RIGHT, lived
from tests.evaluation.made import FAILURE, SUCCESS, episode


def test_a_case_is_the_same_whether_the_episode_was_solved_or_not() -> None:
    solved = episode("a", 0, SUCCESS)
    lost = replace(
        solved,
        outcome=Outcome.failure(),
        steps=tuple(
            replace(s, transition=replace(s.transition, reward=-1.0, success=False))
            for s in solved.steps
        ),
    )
    assert told(case_of(solved), 9_999) == told(case_of(lost), 9_999)


def test_padding_adds_words_and_changes_no_action_and_no_observation() -> None:
    case = case_of(lived(RIGHT))
    more = padded(case)
    assert more.words == case.words + len(case.lines) * len(FILLER.split())
    assert [(line.did, line.seen) for line in more.lines] == [
        (line.did, line.seen) for line in case.lines
    ]


def test_shortening_undoes_padding_where_nothing_else_was_said() -> None:
    case = case_of(lived(RIGHT))
    assert shortened(padded(case)) == case


def test_an_author_is_told_only_where_one_is_given() -> None:
    case = case_of(episode("a", 0, FAILURE))
    assert "Author" not in told(case, 9_999)
    assert "Author of the actions: gpt" in told(replace(case, author="gpt"), 9_999)


@given(st.integers(0, 60), st.integers(200, 4_000))
def test_a_long_record_keeps_its_task_its_beginning_and_its_end(count: int, longest: int) -> None:
    lines = tuple(Line("", f"act{i}", "seen " * 5) for i in range(count))
    text = told(Case(episode("a", 0, FAILURE), "the task", lines), longest)
    assert "the task" in text
    assert len(text) <= longest + 120
    if count:
        assert f"act{count - 1}\n" in text
    if "left out" in text and longest > 400:
        assert "act0\n" in text
