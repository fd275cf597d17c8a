"""Elements of a page in fewer lines: plain texts merged, and tables as Markdown.

Both take the elements in document order, a parent before its children, and return elements for the
views of `element_text.py`, in linear time. What can be acted on keeps its id and its line.

Source: Yang et al. 2024, "AgentOccam" (merged static text, tables as Markdown).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from palaestra.core.element import Element
from palaestra.core.element_text import MARKDOWN, TEXT, flat, is_interactive
from palaestra.core.gesture import Id
from palaestra.core.gestures.gesture_line import write_target

HEADER = "columnheader"
_BLOCKS = frozenset(("blockquote", "caption", "definition", "listitem", "paragraph", "term"))
_TABLE_PARTS = frozenset(("cell", "columnheader", "gridcell", "row", "rowheader", MARKDOWN))


def merged(elements: Sequence[Element]) -> list[Element]:
    """Return the elements with texts joined, and without what only groups others.

    Texts of one paragraph are one line, and so are a term and its definition. Left out are unnamed
    elements that nobody acts on (their children take their place), elements that repeat the name
    of what they are in, such as the picture in a link, or of a link or button in them, such as the
    heading around a link, and the text of a label before the field that has its name. Parts of
    tables stay.
    """
    names: dict[str | None, list[str]] = {one.id: one.name.split() for one in elements}
    said_within = {
        element.parent
        for element in elements
        if is_interactive(element)
        and element.name
        and names[element.id] == names.get(element.parent)
    }
    around: dict[str | None, str | None] = {None: None}  # of what is left out, what it stood in
    block: dict[str | None, str] = {}  # the paragraph or the like that an element is in
    term = ""
    kept: list[Element] = []
    for element in elements:
        term = element.id if element.role == "term" else term
        own = term if element.role == "definition" else element.id
        block[element.id] = own if element.role in _BLOCKS else block.get(element.parent, "")
        parent = around.get(element.parent, element.parent)
        around[element.id] = element.id
        repeats = element.id in said_within or names[element.id] == names.get(parent)
        if _only_groups(element) or (repeats and _only_says(element)):
            around[element.id] = parent
        else:
            role = TEXT if element.role == "term" and _only_says(element) else element.role
            kept.append(replace(element, role=role, parent=parent))
    return [one for one in _joined(kept, block) if not (one.role == TEXT and not one.name)]


def with_tables(elements: Sequence[Element]) -> list[Element]:
    """Return the elements with each row of a table as one line of Markdown.

    A row whose cells are column headers is followed by the line that Markdown wants below them.
    What can be acted on stands in its cell as in other views: `| [12] link '107' | 3 |`.
    """
    rows: dict[str, list[Element]] = {}  # row → all that is in it
    row_of: dict[str | None, str] = {}
    shown: list[Element] = []
    for element in elements:
        row = row_of.get(element.parent)
        if row is not None:
            row_of[element.id] = row
            rows[row].append(element)
            continue
        if element.role == "row":
            row_of[element.id] = element.id
            rows[element.id] = []
        shown.append(element)
    return [line for one in shown for line in (_table_row(one, rows[one.id]) if one.id in rows
                                               else [one])]  # fmt: skip


def _only_groups(element: Element) -> bool:
    unnamed = not (element.name.strip() or element.value)
    return unnamed and not is_interactive(element) and element.role not in _TABLE_PARTS


def _only_says(element: Element) -> bool:
    """Return whether an element is its name and no more."""
    return not (element.value or is_interactive(element) or element.role in _TABLE_PARTS)


def _joined(elements: Sequence[Element], block: Mapping[str | None, str]) -> Iterator[Element]:
    """Yield the elements, neighbouring texts of a block as one, labels of a field left out."""
    text: Element | None = None
    for element in elements:
        at = element.parent, block[element.id]
        if element.role == TEXT and text is not None and at == (text.parent, block[text.id]):
            text = replace(text, name=f"{text.name.rstrip()} {element.name.lstrip()}")
            continue
        labels = is_interactive(element) and text is not None and text.name.strip() == element.name
        if text is not None and not labels:
            yield text
        text = element if element.role == TEXT else None
        if text is None:
            yield element
    if text is not None:
        yield text


def _table_row(row: Element, inside: Sequence[Element]) -> list[Element]:
    """Return a row as lines of Markdown."""
    cells: dict[str, list[Element]] = {}
    cell_of: dict[str | None, str] = {}
    for element in inside:
        cell = cell_of.setdefault(element.id, cell_of.get(element.parent, element.id))
        cells.setdefault(cell, []).append(element)
    texts = [_cell_text(parts) for parts in cells.values()]
    texts = texts if any(texts) else [row.name]
    target = f"{write_target(Id(row.id))} " if is_interactive(row) else ""
    lines = [f"{target}| {' | '.join(texts)} |"]
    if cells and all(parts[0].role == HEADER for parts in cells.values()):
        lines.append("|" + " --- |" * len(cells))
    return [
        Element(row.id if number == 0 else f"{row.id}/{number}", MARKDOWN, line, parent=row.parent)
        for number, line in enumerate(lines)
    ]


def _cell_text(parts: Sequence[Element]) -> str:
    """Return what a cell, the first of `parts`, and all in it say, in one line."""
    cell, *inside = parts
    found = flat(parts) if is_interactive(cell) else flat(inside) or cell.name
    return " ".join(found.split("\n")).replace("|", "\\|")
