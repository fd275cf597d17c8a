"""Elements as text."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Box, Element
from palaestra.core.element_text import INTERACTIVE, LIMIT, flat, mark_list, marked, tree
from palaestra.core.gesture import Mark
from palaestra.core.gestures.locating import element_of

SHOP = [
    Element("1", "RootWebArea", "Shop"),
    Element("2", "generic", parent="1"),
    Element("3", "heading", "Red shoes", states=("level=1",), parent="2"),
    Element("4", "StaticText", "Red shoes", parent="3"),
    Element("5", "image", "A red shoe", parent="2", box=Box(0, 0, 50, 50)),
    Element("6", "StaticText", "Only two\n left", parent="2"),
    Element("7", "textbox", "Size", "42", ("focused",), Box(0, 60, 80, 20), "2"),
    Element("8", "button", "Buy", box=Box(100, 60, 40, 20), parent="2"),
    Element("9", "StaticText", "Buy", parent="8"),
    Element("10", "button", "Sell", states=("disabled",), box=Box(150, 60, 40, 20), parent="2"),
    Element("a b", "link", "Terms", parent="2"),
]


def test_the_tree_indents_and_leaves_out_what_says_nothing() -> None:
    assert tree(SHOP).splitlines() == [
        "[1] RootWebArea 'Shop'",
        "  [3] heading 'Red shoes', level=1",
        "  [5] image 'A red shoe'",
        "  StaticText 'Only two left'",
        "  [7] textbox 'Size', value='42', focused",
        "  [8] button 'Buy'",
        "  [10] button 'Sell', disabled",
        "  ['a b'] link 'Terms'",
    ]


def test_the_text_has_the_words_and_what_can_be_acted_on() -> None:
    assert flat(SHOP).splitlines() == [
        "Red shoes",
        "A red shoe",
        "Only two left",
        "[7] textbox 'Size', value='42', focused",
        "[8] button 'Buy'",
        "[10] button 'Sell', disabled",
        "['a b'] link 'Terms'",
    ]


def test_marks_number_what_can_be_acted_on_in_the_picture() -> None:
    assert [element.id for element in marked(SHOP)] == ["7", "8"]
    assert mark_list(SHOP) == "#1 textbox 'Size', value='42', focused\n#2 button 'Buy'"


def test_a_page_of_fifty_thousand_elements_says_what_is_left_out() -> None:
    page = [Element("0", "RootWebArea")]
    page += [
        Element(str(n), "button", f"B{n}", box=Box(0, n, 9, 1), parent=str(n - 1))
        for n in range(1, 50_000)
    ]
    left = f"({50_000 - LIMIT} of 50000 elements are left out; the first {LIMIT} are shown.)"
    assert tree(page).splitlines()[-1] == left
    assert len(tree(page).splitlines()) == LIMIT + 1
    assert flat(page).splitlines()[-1] == left.replace("50000", "49999").replace("48000", "47999")
    assert len(marked(page)) == LIMIT


def pages(draw: st.DrawFn) -> list[Element]:
    roles = st.sampled_from(["generic", "StaticText", "heading", "link", "button", "textbox"])
    found: list[Element] = []
    for number in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from([None, *(element.id for element in found)]))
        box = draw(st.sampled_from([None, Box(number, 0, 9, 9), Box(0, 0, 0, 5)]))
        name = draw(st.sampled_from(["", "Buy", "Sell", "two words"]))
        found.append(Element(str(number), draw(roles), name, box=box, parent=parent))
    return found


@given(st.composite(pages)())
def test_every_element_to_act_on_is_in_both_texts_once(elements: list[Element]) -> None:
    for text in (tree(elements), flat(elements)):
        lines = [line.strip() for line in text.splitlines()]
        for element in elements:
            if element.role in INTERACTIVE:
                assert sum(line.startswith(f"[{element.id}] ") for line in lines) == 1


@given(st.composite(pages)())
def test_the_number_in_the_list_is_the_mark_of_a_gesture(elements: list[Element]) -> None:
    for line, element in zip(mark_list(elements).splitlines(), marked(elements), strict=True):
        number = int(line.split()[0].removeprefix("#"))
        assert element_of(Mark(number), elements) == element


def test_what_listens_to_clicks_is_acted_on_whatever_its_role() -> None:
    plain = Element("1", "generic", "Buy", box=Box(0, 0, 9, 9))
    assert marked([plain]) == []
    clickable = replace(plain, states=("clickable",))
    assert marked([clickable]) == [clickable]
    assert flat([clickable]) == "[1] generic 'Buy', clickable"
