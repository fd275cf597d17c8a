"""Transcripts: the right pair is chosen, and nothing a model says breaks the page."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.message import ToolCall
from palaestra.evaluation.reports.transcript import (
    LONGEST_TEXT,
    choose_pair,
    plain,
    side_by_side_markdown,
    table,
    turns,
)
from tests.evaluation.made import CRASH, FAILURE, OUT_OF_TURNS, SUCCESS, episode

BEFORE = episode("test/base", 3, OUT_OF_TURNS, ["jump", "turn left", "jump"], invalid=[0, 2])
AFTER = episode("test/rl", 3, SUCCESS, ["go forward", "go forward"])


def side_by_side(before: Episode, after: Episode, width: int, *, limit: int | None = None) -> str:
    """The table as plain text, at most `width` terminal cells wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table(before, after, limit=limit))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_the_shortest_success_that_failed_before_is_chosen() -> None:
    before = [episode("test/base", group, FAILURE) for group in range(4)]
    before[0] = episode("test/base", 0, SUCCESS)
    after = [
        episode("test/rl", 0, SUCCESS, ["a"]),
        episode("test/rl", 1, SUCCESS, ["a"] * 5),
        episode("test/rl", 2, SUCCESS, ["a"] * 3),
        episode("test/rl", 3, SUCCESS, ["a"] * 3),
    ]
    assert choose_pair(before, after) == (before[2], after[2])
    assert choose_pair(before[::-1], after[::-1]) == (before[2], after[2])


def test_without_a_newly_solved_task_the_largest_saving_of_turns_is_chosen() -> None:
    before = [episode("test/base", g, SUCCESS, ["a"] * n) for g, n in ((0, 5), (1, 9))]
    after = [episode("test/rl", g, SUCCESS, ["a"] * n) for g, n in ((0, 4), (1, 6))]
    assert choose_pair(before, after) == (before[1], after[1])


def test_without_any_success_some_task_is_still_shown() -> None:
    before, after = [episode("test/base", 7, SUCCESS)], [episode("test/rl", 7, FAILURE)]
    assert choose_pair(before, after) == (before[0], after[0])


def test_unscored_episodes_and_unmatched_tasks_are_never_shown() -> None:
    before = [episode("test/base", 0, CRASH), episode("test/base", 1, FAILURE)]
    after = [episode("test/rl", 0, SUCCESS), episode("test/rl", 2, SUCCESS)]
    assert choose_pair(before, after) is None
    assert choose_pair([], []) is None


def test_turns_end_with_the_last_thing_seen() -> None:
    rows = turns(AFTER)
    assert [row.action for row in rows] == ["go forward", "go forward", ""]
    assert rows[0].observation.startswith("Mission: go to the red ball.")
    assert [row.reward for row in rows] == [0.0, 1.0, 0.0]


def test_a_tool_call_is_shown_as_a_call() -> None:
    from dataclasses import replace

    step = replace(AFTER.steps[0], action=Action("", ToolCall("move", {"steps": 2})))
    rows = turns(replace(AFTER, steps=(step,)))
    assert rows[0].action == "move(steps=2)"


def test_an_episode_whose_reset_failed_has_no_turns() -> None:
    from dataclasses import replace

    assert turns(replace(BEFORE, observation=None, steps=())) == []


def test_both_episodes_stand_side_by_side_with_all_that_happened() -> None:
    text = side_by_side(BEFORE, AFTER, 100)
    first = next(line for line in text.splitlines() if "1 >" in line)
    assert "1 > jump  invalid" in first
    assert "1 > go forward" in first
    assert "reward +1.00" in text
    assert "truncated(turns) after 3 turns" in text
    assert "success after 2 turns" in text
    assert "before (base)" in text
    assert "after (rl)" in text


def test_a_limit_counts_the_turns_it_leaves_out() -> None:
    long = episode("test/base", 3, FAILURE, ["wait"] * 30)
    text = side_by_side(long, AFTER, 80, limit=10)
    assert "10 > wait" in text
    assert "11 > wait" not in text
    assert "… 20 more turns" in text
    assert "| … | … 20 more turns |  |" in side_by_side_markdown(long, AFTER, limit=10)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    wide = episode("test/base", 3, FAILURE, ["漢字" * 50, "x" * 300, "🦊 " * 40])
    for line in side_by_side(wide, AFTER, width).splitlines():
        assert cell_len(line) <= width


def test_escape_codes_markup_and_newlines_of_a_model_are_only_text() -> None:
    rude = episode("test/base", 3, FAILURE, ["\x1b[2J[bold red]hi[/]\r\n\x07there", "\ud800"])
    text = side_by_side(rude, AFTER, 120)
    assert "\x1b" not in text
    assert "␛[2J[bold red]hi[/] ␇there" in text
    text.encode()


@given(st.text())
def test_plain_text_is_one_printable_line(text: str) -> None:
    line = plain(text)
    assert len(line.splitlines()) <= 1
    assert len(line) <= LONGEST_TEXT
    assert plain(line) == line
    line.encode()


@given(st.text(max_size=80))
def test_no_action_breaks_a_markdown_table(words: str) -> None:
    page = side_by_side_markdown(episode("test/base", 3, FAILURE, [words]), AFTER)
    rows = page.splitlines()
    assert len(rows) == 2 + 3 + 1
    for row in rows:
        bare = row.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") == 4


def test_a_silent_agent_is_shown_as_silent() -> None:
    silent = episode("test/base", 3, FAILURE, [""], invalid=[0])
    assert "(empty reply)  invalid" in side_by_side(silent, AFTER, 100)
    assert "(empty reply)" in side_by_side_markdown(silent, AFTER)
