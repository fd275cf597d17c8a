"""Elements read from saved pages, and pages written from elements."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Box, Element
from palaestra.core.element_text import TEXT, tree
from palaestra.store.exchange.html_elements import read_page, write_page
from tests.store.exchange.weblinx_made import BOXES, SHOP

READ = {uid: Box(*map(float, box)) for uid, box in BOXES.items()}
TREE = """\
[r] RootWebArea 'Shop'
  [n] navigation
    [home] link 'Home'
  [f] form
    [n10] LabelText
      StaticText 'Search for'
    [field] textbox 'Search for'
    [find] button 'Find'
    [size] combobox, value='medium'
      [s] option 'small'
      [m] option 'medium', selected
  [card] generic 'Red shoes 20 €', clickable
    StaticText 'Red shoes'
    StaticText '20 €'
  [foot] contentinfo
    StaticText 'Far below'"""


def test_a_page_has_roles_names_values_and_states() -> None:
    assert tree(read_page(SHOP, READ, (800, 600))) == TREE


def test_what_is_outside_of_the_window_has_no_box_and_what_has_no_area_is_left_out() -> None:
    found = {element.id: element for element in read_page(SHOP, READ, (800, 600))}
    assert found["field"].box == Box(100, 50, 200, 30)
    assert found["foot"].box is None
    assert "gone" not in found and "track()" not in tree(list(found.values()))
    assert "gone" in {element.id for element in read_page(SHOP)}


def test_names_come_from_attributes_labels_and_words() -> None:
    page = (
        '<span id="a">Your</span><span id="b">name</span>'
        '<input data-webtasks-id="1" aria-labelledby="a b"><input data-webtasks-id="2" '
        'placeholder="City"><label>Agree <input data-webtasks-id="3" type="checkbox" '
        "checked></label>"
        '<input data-webtasks-id="4" type="submit" value="Go"><img data-webtasks-id="5" alt="Cat">'
        '<a data-webtasks-id="6" href="/"><img alt="Top"></a><h2 data-webtasks-id="7">News</h2>'
        '<div data-webtasks-id="8" role="tab" aria-expanded="false" aria-selected="true">One</div>'
        '<textarea data-webtasks-id="9">Dear\nAnn</textarea><div hidden><a href="/">No</a></div>'
    )
    found = [one for one in read_page(page) if one.id.isdigit()]
    assert [(one.role, one.name, one.value, one.states) for one in found] == [
        ("textbox", "Your name", "", ()),
        ("textbox", "City", "", ()),
        ("checkbox", "Agree", "", ("checked",)),
        ("button", "Go", "", ()),
        ("image", "Cat", "", ()),
        ("link", "Top", "", ()),
        ("heading", "News", "", ("level=2",)),
        ("tab", "One", "", ("collapsed", "selected")),
        ("textbox", "", "Dear\nAnn", ("multiline",)),
    ]


WORDS = st.text("ab <&\"'é", max_size=6).map(lambda text: " ".join(text.split()))
ROLES = st.sampled_from(
    "button link textbox checkbox radio combobox option heading image list listitem form tab "
    "generic spinbutton paragraph dialog".split()
)
STATES = st.lists(
    st.sampled_from("checked disabled focused expanded required pressed=mixed".split()),
    unique=True,
    max_size=2,
).map(lambda states: tuple(sorted(states)))


@st.composite
def pages(draw: st.DrawFn) -> list[Element]:
    """Draw a tree of elements below a root, in document order."""
    found = [Element("1", "RootWebArea", draw(WORDS))]
    path = ["1"]
    for number in range(2, draw(st.integers(2, 12))):
        path = path[: draw(st.integers(1, len(path)))]
        role = draw(ROLES)
        inside = role in ("button", "list", "listitem", "form", "generic", "paragraph", "dialog")
        name, value = draw(WORDS), draw(WORDS) if role in ("textbox", "combobox") else ""
        found.append(Element(str(number), role, name, value, draw(STATES), parent=path[-1]))
        if inside:
            path.append(str(number))
    return found


@given(pages())
def test_a_page_that_was_written_has_the_same_elements(page: list[Element]) -> None:
    assert read_page(write_page(page)) == page


def test_texts_are_within_what_they_were_in() -> None:
    page = [
        Element("1", "RootWebArea", "Shop"),
        Element("2", "button", "Buy now", parent="1"),
        Element("3", TEXT, "Buy", parent="2"),
        Element("4", TEXT, "now", parent="2"),
        Element("5", "paragraph", parent="1"),
        Element("6", TEXT, "a < b", parent="5"),
    ]
    read = read_page(write_page(page))
    assert [replace(one, id="") for one in read] == [replace(one, id="") for one in page]
