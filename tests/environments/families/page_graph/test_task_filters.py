"""Candidates on a small graph: which are tasks, and why the others are not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from palaestra.core.element import Element
from palaestra.environments.families.page_graph.linked_pages import (
    Edge,
    Fact,
    Page,
    PageGraph,
    kind_of,
)
from palaestra.environments.families.page_graph.meta_paths import META_PATHS, Candidate
from palaestra.environments.families.page_graph.page_reading import Reading
from palaestra.environments.families.page_graph.task_filters import kept_tasks, rejection, way

HOME, LIST = "http://a.example/", "http://a.example/cats"


def cat(number: int, name: str, weight: str, owner: str = "") -> Page:
    facts = (Fact("Name", name), Fact("Weight", weight), Fact("Owner", "see", owner))
    return Page(f"http://a.example/cat?id={number}", "Cat", facts)


def graph() -> PageGraph:
    """Home leads to a list, the list to three cats, of which one can be reached by no words."""
    cats = [
        cat(1, "Tom", "4"),
        cat(2, "Kim", "5", "http://a.example/owner?id=1"),
        cat(3, "Bo", "6"),
    ]
    owner = Page("http://a.example/owner?id=1", "Owner", (Fact("Phone", "555"),))
    rows = tuple(
        (Fact("Name", one.facts[0].value), Fact("Age", str(n))) for n, one in enumerate(cats)
    )
    found = PageGraph(HOME)
    for page in (Page(HOME, "Home"), Page(LIST, "Cats", rows=rows), *cats, owner):
        found.pages[page.address] = page
    found.edges = {
        HOME: [Edge("link", LIST, ("click 'Cats'",))],
        LIST: [Edge("link", one.address, (f"click '{one.facts[0].value}'",)) for one in cats[:2]]
        + [Edge("link", cats[2].address, ())],
        cats[1].address: [Edge("link", owner.address, ("click 'see'",))],
    }
    return found


def asked(number: int = 1, key: Fact | None = None) -> Candidate:
    page = graph().pages[f"http://a.example/cat?id={number}"]
    key = key or page.facts[0]
    return Candidate(
        "fact", f"The page of {key.value}: what is its weight?", (page.address,),
        page.facts[1].value, (page.address, "Weight"), ((kind_of(page.address), key),),
    )  # fmt: skip


def test_a_way_goes_over_all_stops() -> None:
    world = graph()
    second, owner = "http://a.example/cat?id=2", "http://a.example/owner?id=1"
    found = way(world, HOME, (second, owner))
    assert found is not None
    assert [edge.gestures[0] for edge in found] == ["click 'Cats'", "click 'Kim'", "click 'see'"]
    assert way(world, HOME, (owner, second)) is None  # nothing leads back


def test_a_page_that_no_words_lead_to_is_no_task() -> None:
    assert rejection(graph(), asked(1), ()) is None
    assert rejection(graph(), asked(3), ()) == "unreachable"


def test_a_key_that_fits_two_pages_is_ambiguous() -> None:
    assert rejection(graph(), asked(1, Fact("Owner", "see")), ()) == "ambiguous"


def test_a_kind_that_was_not_read_whole_may_hold_another_such_page() -> None:
    world = graph()
    world.unread = {"http://a.example/cat?id=4"}
    assert rejection(world, asked(1), ()) == "incomplete"


def test_a_goal_that_says_its_answer_is_no_task() -> None:
    assert rejection(graph(), replace(asked(1), answer="tom"), ()) == "told"


def test_the_same_question_and_nearly_the_same_words_are_kept_once() -> None:
    first = asked(1)
    again = replace(first, goal="Which weight has Tom, as his own page says it?")
    assert rejection(graph(), again, [first]) == "duplicate"
    other = replace(asked(2), goal=first.goal.replace("Tom", "Tim"))
    assert rejection(graph(), other, [first]) is None  # one word of eight differs on each side
    longer = replace(first, goal=f"{first.goal} Please look it up and then say it here to me now")
    near = replace(longer, goal=longer.goal.replace("Tom", "Tim"), asked=("another",))
    assert rejection(graph(), near, [longer]) == "duplicate"


def test_the_first_page_needs_no_way() -> None:
    world = graph()
    here = Candidate("count", "How many?", (HOME,), 3, ("count",), titles=("Home",))
    assert rejection(world, here, ()) == "trivial"


@pytest.mark.parametrize("name", [one for one in META_PATHS if one != "search"])
def test_answers_of_each_meta_path_are_those_of_the_graph(name: str) -> None:
    world, seen = graph(), set()
    for seed in range(60):
        found = META_PATHS[name](world, random.Random(seed))
        if found is None:
            continue
        seen.add(found.stops)
        last = world.pages[found.stops[-1]]
        if name == "compare":
            weights = {world.pages[at].facts[0].value: at for at in found.stops}
            assert found.answer == max(weights, key=lambda one: weights[one])  # ids rise as weights
        elif name == "count":
            assert found.answer in (1,)
        elif name == "open":
            assert found.answer is None
        else:
            told = [fact.value for facts in (last.facts, *last.rows) for fact in facts]
            assert found.answer in told
    assert seen


def test_kept_tasks_all_have_a_way_and_differ() -> None:
    world = graph()
    kept = kept_tasks(world, random.Random(0), 50)
    assert kept.tasks and kept.samples == len(kept.tasks) + kept.rejected.total()
    assert kept.rejected["unreachable"] and kept.rejected["duplicate"]
    for one in kept.tasks:
        assert way(world, HOME, one.stops)
        assert "http://a.example/cat?id=3" not in one.stops
    assert len({(one.meta_path, one.asked) for one in kept.tasks}) == len(kept.tasks)


def test_a_page_is_read_from_its_elements() -> None:
    elements = [
        Element("1", "RootWebArea", "Shelter"),
        Element("2", "heading", "Cats", states=("level=1",), parent="1"),
        Element("3", "term", parent="1"), Element("4", "StaticText", "Open", parent="3"),
        Element("5", "definition", parent="1"), Element("6", "StaticText", "daily", parent="5"),
        Element("7", "row", parent="1"), Element("8", "columnheader", "Name", parent="7"),
        Element("9", "row", parent="1"), Element("10", "cell", "Tom", parent="9"),
        Element("11", "link", "Tom", parent="10"),
    ]  # fmt: skip
    reading = Reading(LIST, elements, {"11": "http://a.example/cat?id=1#top"})
    page = reading.page()
    assert page.title == "Cats" and page.facts == (Fact("Open", "daily"),)
    assert page.rows == ((Fact("Name", "Tom", "http://a.example/cat?id=1#top"),),)
    assert reading.links() == [Edge("link", "http://a.example/cat?id=1", ("click 'Tom'",))]
