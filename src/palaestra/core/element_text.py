"""Elements as text: the accessibility tree, the words of a page, and the numbers on its picture.

All take the elements in document order, a parent before its children, in linear time. Of more than
`LIMIT` lines the rest is left out, and a last line says how many. `words` (see
`gestures/element_words.py`) are those that name elements: these need no id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from palaestra.core.element import Element
from palaestra.core.gesture import Id, Words
from palaestra.core.gestures.gesture_line import write_target

LIMIT = 2000  # lines, of a text and as many marks of a picture
TEXT = "StaticText"  # the role of plain text, as in Chromium's accessibility tree
MARKDOWN = "Markdown"  # the role of a line that is shown as it is; see `element_compaction.py`
INTERACTIVE = frozenset(
    "button checkbox combobox link listbox menuitem menuitemcheckbox menuitemradio option radio "
    "searchbox slider spinbutton switch tab textbox treeitem".split()
)
"""Roles of elements that are acted on (WAI-ARIA's widgets that take a click or a key)."""

_UNNAMED = frozenset(("generic", "none", "presentation"))  # roles that say nothing by themselves


def is_interactive(element: Element) -> bool:
    """Return whether an element is acted on: by its role, or because it listens to clicks."""
    return element.role in INTERACTIVE or "clickable" in element.states


def tree(
    elements: Sequence[Element], limit: int = LIMIT, words: Mapping[str, str] | None = None
) -> str:
    """Return the accessibility tree: one element a line, indented below its parent.

    Left out are texts that repeat the name of what is around them, and elements without a role, a
    name or a value of their own, whose children take their place. Plain texts show no id.
    """
    depth: dict[str | None, int] = {None: 0}  # of the children of an element
    repeated = _repeated(elements)
    lines = []
    for element in elements:
        level = depth.get(element.parent, 0)
        silent = element.role in _UNNAMED and not (element.name or element.value or element.states)
        depth[element.id] = level if silent else level + 1
        if not silent and element.id not in repeated:
            lines.append((level, element))
    shown = (
        f"{'  ' * level}{described(element, words)}" for level, element in islice(lines, limit)
    )
    return "\n".join([*shown, *_left_out(len(lines), limit)])


def flat(
    elements: Sequence[Element], limit: int = LIMIT, words: Mapping[str, str] | None = None
) -> str:
    """Return the words of a page and the elements to act on, in order, without indentation.

    What only groups others is left out; of named elements that hold no text, such as pictures,
    the name is the text.
    """
    acted_on: set[str | None] = set()  # elements to act on and all within, whose words they say
    worded: set[str | None] = set()  # elements that hold plain text
    for element in elements:
        if is_interactive(element) or element.parent in acted_on:
            acted_on.add(element.id)
    for element in reversed(elements):
        if element.id in worded or (element.role in (TEXT, MARKDOWN) and element.name.strip(" |-")):
            worded.add(element.parent)
    without = acted_on | worded
    lines: list[Element | str] = []
    for element in elements:
        if is_interactive(element) or element.role == MARKDOWN:
            lines.append(element)
        elif element.id not in without and (name := _one_line(element.name)):
            lines.append(name)
    shown = (one if isinstance(one, str) else described(one, words) for one in islice(lines, limit))
    return "\n".join([*shown, *_left_out(len(lines), limit)])


def marked(elements: Iterable[Element], limit: int = LIMIT) -> list[Element]:
    """Return the elements that get the numbers 1, 2, … on a picture.

    These are the elements to act on that are in the picture and not disabled, in document order.
    """
    numbered = (
        element
        for element in elements
        if is_interactive(element)
        and element.box is not None
        and element.box.width > 0
        and element.box.height > 0
        and "disabled" not in element.states
    )
    return list(islice(numbered, limit))


def mark_list(elements: Sequence[Element], limit: int = LIMIT) -> str:
    """Return the marked elements, one a line behind its number: `#3 button 'Buy'`."""
    found = marked(elements, len(elements))
    lines = [f"#{number} {_said(one)}" for number, one in enumerate(found[:limit], 1)]
    return "\n".join([*lines, *_left_out(len(found), limit)])


def described(element: Element, words: Mapping[str, str] | None = None) -> str:
    """Return an element in one line: `[12] textbox 'Name', value='Ann', focused`.

    Words that name the element take the place of the id (`'second Buy button' button 'Buy'`), and
    are left out where they are what follows: the name, or the role of what has no name.
    """
    said = _said(element)
    if element.role in (TEXT, MARKDOWN):
        return said
    called = None if words is None else words.get(element.id)
    if called is None:
        return f"{write_target(Id(element.id))} {said}"
    if called == (_one_line(element.name) or element.role):
        return said
    return f"{write_target(Words(called))} {said}"


def named(elements: Collection[Element], most: int = 5) -> str:
    """Return the first few elements in one line, for messages."""
    more = ", …" if len(elements) > most else ""
    return ", ".join(described(element) for element in islice(elements, most)) + more


def _said(element: Element) -> str:
    if element.role == MARKDOWN:
        return element.name
    parts = [f"{element.role} {_one_line(element.name)!r}" if element.name else element.role]
    if element.value:
        parts.append(f"value={_one_line(element.value)!r}")
    return ", ".join([*parts, *element.states])


def _repeated(elements: Sequence[Element]) -> set[str]:
    """Return the ids of the plain texts that are the name of their parent."""
    names = {element.id: _one_line(element.name) for element in elements}
    return {
        element.id
        for element in elements
        if element.role == TEXT and names[element.id] == names.get(element.parent or "", "")
    }


def _left_out(count: int, limit: int) -> list[str]:
    if count <= limit:
        return []
    return [f"({count - limit} of {count} elements are left out; the first {limit} are shown.)"]


def _one_line(text: str) -> str:
    return " ".join(text.split())
