"""Cases contain the agent's observations and actions, and nothing that reveals the truth."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.outcome import Outcome
from palaestra.evaluation.judges.case import (
    FILLER,
    Case,
    CaseTurn,
    case_of,
    padded,
    render_case,
    shortened,
)
from tests.evaluation.attribution.worlds import RIGHT, roll_out
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
    assert render_case(case_of(solved), 9_999) == render_case(case_of(lost), 9_999)


def test_padding_adds_words_and_changes_no_action_and_no_observation() -> None:
    case = case_of(roll_out(RIGHT))
    more = padded(case)
    assert more.words == case.words + len(case.turns) * len(FILLER.split())
    assert [(turn.action, turn.observation) for turn in more.turns] == [
        (turn.action, turn.observation) for turn in case.turns
    ]


def test_shortening_undoes_padding_if_the_agent_added_no_other_words() -> None:
    case = case_of(roll_out(RIGHT))
    assert shortened(padded(case)) == case


def test_an_author_is_named_only_if_one_is_given() -> None:
    case = case_of(episode("a", 0, FAILURE))
    assert "Author" not in render_case(case, 9_999)
    assert "Author of the actions: gpt" in render_case(replace(case, author="gpt"), 9_999)


@given(st.integers(0, 60), st.integers(200, 4_000))
def test_a_long_record_keeps_its_task_its_beginning_and_its_end(count: int, longest: int) -> None:
    turns = tuple(CaseTurn("", f"act{i}", "seen " * 5) for i in range(count))
    text = render_case(Case(episode("a", 0, FAILURE), "the task", turns), longest)
    assert "the task" in text
    assert len(text) <= longest + 120
    if count:
        assert f"act{count - 1}\n" in text
    if "left out" in text and longest > 400:
        assert "act0\n" in text
