"""Elements in fewer lines: merged texts, and tables as Markdown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Element
from palaestra.core.element_compaction import merged, with_tables
from palaestra.core.element_text import INTERACTIVE, TEXT, flat, tree

SHOP = [
    Element("1", "RootWebArea", "Shop"),
    Element("2", "list", parent="1"),
    Element("3", "listitem", states=("level=1",), parent="2"),
    Element("4", "link", "Red shoes", parent="3"),
    Element("5", "image", "Red shoes", parent="4"),
    Element("6", "paragraph", parent="3"),
    Element("7", TEXT, "€12", parent="6"),
    Element("8", "strong", parent="3"),
    Element("9", TEXT, " in stock ", parent="8"),
    Element("17", TEXT, "until noon", parent="3"),
    Element("10", "heading", "More", states=("level=2",), parent="3"),
    Element("11", "link", "More", parent="10"),
    Element("12", "LabelText", parent="1"),
    Element("13", TEXT, "Size", parent="12"),
    Element("14", "textbox", "Size", "42", parent="1"),
    Element("15", "navigation", "path", parent="1"),
    Element("16", TEXT, "Home", parent="15"),
    Element("18", "term", "Made", parent="1"),
    Element("19", TEXT, "Made", parent="18"),
    Element("20", "definition", parent="1"),
    Element("21", TEXT, "in 2021", parent="20"),
    Element("22", "term", parent="1"),
    Element("23", TEXT, "By", parent="22"),
]
ORDERS = [
    Element("1", "table", "Orders"),
    Element("2", "caption", parent="1"),
    Element("3", TEXT, "Orders", parent="2"),
    Element("4", "rowgroup", parent="1"),
    Element("5", "row", parent="4"),
    Element("6", "columnheader", "Number", parent="5"),
    Element("7", "link", "Number", parent="6"),
    Element("8", "columnheader", "By | for", parent="5"),
    Element("9", TEXT, "By | for", parent="8"),
    Element("10", "row", states=("clickable",), parent="4"),
    Element("11", "cell", "107", parent="10"),
    Element("12", "link", "107", parent="11"),
    Element("13", TEXT, "107", parent="12"),
    Element("14", "cell", "Ann", parent="10"),
    Element("15", "checkbox", states=("checked",), parent="14"),
    Element("16", TEXT, "Ann", parent="14"),
]


def test_texts_are_joined_and_nothing_is_said_twice() -> None:
    assert tree(merged(SHOP)).split("\n") == [
        "[1] RootWebArea 'Shop'",
        "  [4] link 'Red shoes'",
        "  StaticText '€12'",
        "  StaticText 'in stock until noon'",
        "  [11] link 'More'",
        "  [14] textbox 'Size', value='42'",
        "  [15] navigation 'path'",
        "    StaticText 'Home'",
        "  StaticText 'Made in 2021'",
        "  StaticText 'By'",
    ]


def test_a_table_is_a_line_for_each_row_and_one_below_the_headers() -> None:
    rows = ["| [7] link 'Number' | By \\| for |", "| --- | --- |"]
    rows.append("[10] | [12] link '107' | [15] checkbox, checked Ann |")
    compact = with_tables(ORDERS)
    assert tree(compact).split("\n")[-3:] == [f"    {row}" for row in rows]
    assert flat(compact).split("\n") == ["Orders", *rows]
    assert tree(merged(compact)).split("\n") == [
        "[1] table 'Orders'",
        *(f"  {row}" for row in rows),
    ]


def pages(draw: st.DrawFn) -> list[Element]:
    roles = ["generic", TEXT, "heading", "link", "button", "textbox", "row", "cell", "table"]
    roles += ["paragraph", "term", "definition"]
    found: list[Element] = []
    for number in range(draw(st.integers(0, 14))):
        around = [element.id for element in found if element.role != TEXT]  # a text is a leaf
        parent = draw(st.sampled_from([None, *around]))
        name = draw(st.sampled_from(["", "Buy", "Sell", "two words", "two"]))
        role = draw(st.sampled_from(roles))
        states = draw(st.sampled_from([(), ("clickable",)])) if role != TEXT else ()
        found.append(Element(f"e{number}", role, name, states=states, parent=parent))
    return found


@given(st.composite(pages)())
def test_what_can_be_acted_on_stays_and_no_word_gets_lost(elements: list[Element]) -> None:
    texts = {one.name for one in elements if one.role == TEXT} & {*flat(elements).split("\n")}
    said = {word for text in texts for word in text.split()}
    for compact in (merged(elements), with_tables(elements), merged(with_tables(elements))):
        assert len(compact) <= len(elements) + sum(one.role == "row" for one in elements)
        for text in (tree(compact), flat(compact)):
            for element in elements:
                if element.role in INTERACTIVE or "clickable" in element.states:
                    assert text.count(f"[{element.id}] ") == 1
            for word in said:
                assert word in text
        before: set[str | None] = {None}
        for element in compact:  # a parent stands before its children
            assert element.parent in before
            before.add(element.id)
