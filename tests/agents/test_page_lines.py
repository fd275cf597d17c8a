"""The lines of a page that the history keeps, and those that fit the task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.memory.retrieval import retrieval
from palaestra.agents.page_lines import caption, id_of, pivotal, ranked, without_id

SHOP = """\
Task: Who made the order 107?
[1] RootWebArea 'Orders'
  [2] navigation 'path'
    [3] link 'Home'
    StaticText 'Orders'
  [4] button 'Sort'
  [5] table 'Orders'
    | ['a b'] link '106' | Bob |
    [6] link '107'
    StaticText 'Ann'"""
BEST = retrieval("words")


def test_the_history_keeps_what_was_named_by_id_or_words() -> None:
    assert pivotal(SHOP, "click [6]") == "[6] link '107'"
    assert pivotal(SHOP, "click 'Home'", ["4"]) == "[3] link 'Home'\n[4] button 'Sort'"
    assert pivotal(SHOP, "back") == "[1] RootWebArea 'Orders'"  # the page
    assert pivotal("You are in a hall.\nThere is a door.", "open door") == "There is a door."
    long = pivotal("x" * 200, "open door")
    assert len(long) == 120 and long.endswith(" …")


def test_the_caption_stands_above_the_first_element() -> None:
    assert caption(SHOP) == "Task: Who made the order 107?"
    for text in ("You are in a hall.", "[INFO] all went well\n[1] of 2 steps"):
        assert caption(text) == text
    assert id_of("  ['a b'] link 'x'") == "a b" and id_of("StaticText 'x'") == ""
    assert without_id("  ['a b'] link 'x'") == "link 'x'" and without_id("a [1] b") == "a [1] b"


def test_the_best_lines_stay_below_what_they_are_in() -> None:
    assert ranked(SHOP, "order 107", 1, BEST).split("\n") == [
        "Task: Who made the order 107?",
        "[1] RootWebArea 'Orders'",
        "  [5] table 'Orders'",
        "    [6] link '107'",
        "(6 of 9 lines are left out.)",
    ]
    assert ranked(SHOP, "107", 9, BEST) == SHOP
    # what fits nothing is shown as far as there is room
    assert "[2] navigation" in ranked(SHOP, "nothing like it", 2, BEST)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef")), max_size=12),
       st.integers(1, 12), st.text("abcdef ", max_size=8))  # fmt: skip
def test_ranking_keeps_the_order_and_shows_all_that_lines_are_in(
    drawn: list[tuple[int, str]], top: int, query: str
) -> None:
    lines = [f"{'  ' * depth}[{n}] link '{word}'" for n, (depth, word) in enumerate(drawn)]
    shown = [line for line in ranked("\n".join(lines), query, top, BEST).split("\n") if "[" in line]
    assert [line for line in lines if line in shown] == shown
    assert len(shown) >= min(top, len(lines))
    for line in shown:  # the nearest line above that is less indented is shown, too
        indent = len(line) - len(line.lstrip())
        above = [one for one in lines[: lines.index(line)] if len(one) - len(one.lstrip()) < indent]
        assert not above or above[-1] in shown
