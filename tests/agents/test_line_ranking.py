"""The trained ranker of a page's lines."""

from __future__ import annotations

from palaestra.agents.line_ranking import FEATURES, WEIGHTS, best, features
from palaestra.agents.occam import OccamAgent

PAGE = [
    "[1] RootWebArea 'Orders', focused",
    "StaticText 'All of them'",
    "[4] link 'Home'",
    "[5] checkbox 'Only mine', checked",
    "| [6] link '107' | Ann Lee |",
    "[7] button 'Search'",
    "['a b'] textbox 'Order number', value='1'",
]


def test_features_are_of_the_line_the_task_and_the_place() -> None:
    found = [
        dict(zip(FEATURES, line, strict=True)) for line in features("who made order 107", PAGE)
    ]
    assert len(WEIGHTS) == len(FEATURES)
    root, text, link, box, row, button, field = found
    assert row["row of a table"] == 1 and row["element"] == 0 and root["element"] == 1
    assert [one["button"] for one in found] == [0, 0, 0, 0, 0, 1, 0] and button["link"] == 0
    assert box["box to tick"] == link["link"] == field["field"] == 1
    assert field["share of its words that are the task's"] == 0.5  # order, of order and number
    assert text["bm25"] == 0 and max(one["bm25"] for one in found) == 1
    assert [one["place from 0 (first) to 1"] for one in found[:2]] == [0, 1 / 7]


def test_the_best_lines_are_those_of_the_task_among_what_can_be_acted_on() -> None:
    chosen = best("Search for the order 107", PAGE, 3)
    assert len(chosen) == 3 and PAGE.index("[7] button 'Search'") in chosen
    assert PAGE.index("[1] RootWebArea 'Orders', focused") not in chosen
    assert best("anything", [], 3) == []


def test_the_agent_takes_it_by_name() -> None:
    assert OccamAgent(ranked="trained").rank is best
