"""Elements become BrowserGym's observations, and come back equal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Box, Element
from palaestra.core.element_text import TEXT, tree
from palaestra.environments.shared.browsergym_observations import (
    axtree,
    dom_snapshot,
    extra_properties,
    focused,
    read_elements,
)

ROLES = ("button", "textbox", "checkbox", "heading", "generic", TEXT)
STATES = ("checked", "collapsed", "disabled", "expanded", "focused", "level=2", "required")
FORM = (
    Element("1", "RootWebArea", "Shop", states=("focused",)),
    Element("2", "textbox", "Name", "Ann", ("focused",), Box(10, 20, 80, 16), "1"),
    Element("3", "button", "Buy", box=Box(10, 40, 30, 16), parent="1"),
    Element("4", TEXT, "Buy", parent="3"),
)


@st.composite
def pages(draw: st.DrawFn) -> list[Element]:
    found = [Element("0", "RootWebArea", "page")]
    for number in range(1, draw(st.integers(1, 8))):
        parent = draw(st.sampled_from([one for one in found if one.role != TEXT])).id
        role = draw(st.sampled_from(ROLES))
        if role == TEXT:
            found.append(
                Element(str(number), TEXT, draw(st.text("ab ", min_size=1)), parent=parent)
            )
            continue
        states = tuple(sorted(draw(st.sets(st.sampled_from(STATES), max_size=2))))
        if {"expanded", "collapsed"} <= {*states}:
            states = ("expanded",)
        box = draw(st.one_of(st.none(), st.just(Box(1.0, 2.0, 30.0, 4.0))))
        name, value = draw(st.text("ab ")), draw(st.text("xy"))
        found.append(Element(str(number), role, name, value, states, box, parent))
    return found


def in_order(elements: list[Element]) -> list[Element]:
    """Document order: each element before those within, depth first."""
    children: dict[str | None, list[Element]] = {}
    for element in elements:
        children.setdefault(element.parent, []).append(element)

    def below(one: Element) -> list[Element]:
        return [one, *(found for child in children.get(one.id, []) for found in below(child))]

    return below(elements[0])


@given(pages())
def test_what_is_written_is_read(elements: list[Element]) -> None:
    found = read_elements(axtree(elements), extra_properties(elements))
    plain = [replace(one, id="") if one.role == TEXT else one for one in in_order(elements)]
    assert [replace(one, id="") if one.role == TEXT else one for one in found] == plain
    assert tree(found) == tree(in_order(elements))


def test_nodes_are_those_of_chromium() -> None:
    nodes = axtree(FORM)["nodes"]
    assert nodes[0]["childIds"] == ["2", "3"] and "parentId" not in nodes[0]
    assert nodes[1]["browsergym_id"] == "2" and nodes[1]["value"]["value"] == "Ann"
    assert "browsergym_id" not in nodes[3]
    known = extra_properties(FORM)
    assert known["3"] == {
        "visibility": 1.0,
        "bbox": [10, 40, 30, 16],
        "clickable": True,
        "set_of_marks": True,
    }
    assert known["1"]["visibility"] == 0.0 and known["1"]["bbox"] is None
    assert focused(FORM) == "2"


def test_elements_without_a_common_root_get_one() -> None:
    nodes = axtree([Element("a", "button", "A"), Element("b", "button", "B")])["nodes"]
    assert nodes[0]["role"]["value"] == "RootWebArea" and nodes[0]["childIds"] == ["a", "b"]
    assert len(axtree([])["nodes"]) == 1


def test_the_snapshot_refers_to_its_strings() -> None:
    found = dom_snapshot(FORM)
    nodes, strings = found["documents"][0]["nodes"], found["strings"]
    assert [strings[at] for at in nodes["nodeName"]] == [
        *("#document", "HTML", "INPUT", "BUTTON", "#text"),
    ]
    assert nodes["parentIndex"] == [-1, 0, 1, 1, 3]
    assert [strings[at] for at in nodes["attributes"][2]] == [
        *("bid", "2", "aria-label", "Name", "value", "Ann"),
    ]


def test_browsergym_s_own_functions_read_it() -> None:
    obs = pytest.importorskip("browsergym.utils.obs")
    known = extra_properties(FORM)
    assert obs.flatten_axtree_to_str(axtree(FORM), known, with_clickable=True) == (
        "RootWebArea 'Shop', focused\n\t[2] textbox 'Name' value='Ann', clickable, focused\n"
        "\t[3] button 'Buy', clickable"
    ).replace("RootWebArea", "[1] RootWebArea")
    html = obs.flatten_dom_to_str(dom_snapshot(FORM), known)
    assert '<button bid="3">' in html and "Buy" in html
