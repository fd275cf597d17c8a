"""The words that name an element lead to it and to no other one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Element
from palaestra.core.element_text import flat, tree
from palaestra.core.gesture import Words
from palaestra.core.gestures.element_words import words_of
from palaestra.core.gestures.locating import element_of

PAGE = [
    Element("1", "RootWebArea", "Shop"),
    Element("2", "heading", "Buy  shoes", parent="1"),
    Element("3", "button", "Pay", parent="1"),
    Element("4", "button", "Buy", parent="1"),
    Element("5", "link", "Buy", parent="1"),
    Element("6", "button", "Buy", parent="1"),
    Element("7", "textbox", value="42", parent="1"),
    Element("8", "checkbox", "✓", parent="1"),
    Element("9", "generic", parent="1"),
    Element("10", "paragraph", "Pay", parent="1"),
]
NAMES = st.lists(
    st.sampled_from("the a first second Buy buy button link textbox shoes ✓ #1".split()), max_size=3
).map(" ".join)
ROLES = st.sampled_from(
    ["button", "link", "textbox", "combobox", "radio", "heading", "StaticText", "menu-item"]
)
PAGES = st.lists(st.tuples(ROLES, NAMES), max_size=14).map(
    lambda drawn: [Element(str(n), role, name) for n, (role, name) in enumerate(drawn)]
)


def test_a_name_else_a_role_else_an_order_names_an_element() -> None:
    assert words_of(PAGE) == {
        "1": "Shop",
        "2": "Buy shoes",
        "3": "Pay",
        "4": "first Buy button",
        "5": "Buy link",
        "6": "second Buy button",
        "7": "textbox",
        "8": "✓ checkbox",
    }


@given(PAGES)
def test_words_lead_to_their_element(page: list[Element]) -> None:
    for id, words in words_of(page).items():
        assert element_of(Words(words), page).id == id


def test_a_tenth_alike_is_named_by_its_id() -> None:
    page = [Element(str(n), "link", "More") for n in range(11)]
    assert list(words_of(page).values())[-1] == "ninth More link" and "9" not in words_of(page)
    assert flat(page, words=words_of(page)).endswith("\n[9] link 'More'\n[10] link 'More'")


def test_a_text_shows_words_in_place_of_ids_unless_they_are_the_name_or_the_role() -> None:
    assert tree(PAGE[:7], words=words_of(PAGE)).splitlines() == [
        "RootWebArea 'Shop'",
        "  heading 'Buy shoes'",
        "  button 'Pay'",
        "  'first Buy button' button 'Buy'",
        "  'Buy link' link 'Buy'",
        "  'second Buy button' button 'Buy'",
        "  textbox, value='42'",
    ]
