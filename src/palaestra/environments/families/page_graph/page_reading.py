"""What a page says and where it leads, read from the elements of the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.core.element import Element
from palaestra.core.element_text import TEXT
from palaestra.core.gesture import Gesture, Words
from palaestra.core.gestures.element_words import words_of
from palaestra.core.gestures.gesture_line import write_line
from palaestra.environments.families.page_graph.linked_pages import Edge, Fact, Page

LONG = 80  # characters of a value that can be asked for


class Reading:
    """The elements of one page, with the text within each."""

    def __init__(self, address: str, elements: Sequence[Element], links: Mapping[str, str]) -> None:
        """Read a page.

        Args:
            address: of the page.
            elements: that it shows.
            links: where they lead, by id.
        """
        self.address, self.elements, self._links = address, elements, links
        self._inside: dict[str | None, list[Element]] = {}
        for element in elements:
            self._inside.setdefault(element.parent, []).append(element)
        self.words = words_of(elements)

    def page(self) -> Page:
        """Return what the page says."""
        heads = [one for one in self.elements if one.role == "heading" and self.text(one)]
        first = next((one for one in heads if "level=1" in one.states), None)
        title = self.text(first) if first else (self.elements[0].name if self.elements else "")
        texts = frozenset(self.text(one) for one in self.elements if one.role == TEXT)
        return Page(self.address, title, tuple(self._facts()), tuple(self._rows()), texts)

    def links(self) -> list[Edge]:
        """Return the links, each once; without gestures where no words name it."""
        found: dict[str, Edge] = {}
        for element in self.elements:
            target = self._links.get(element.id, "").partition("#")[0]
            if not target or target == self.address:
                continue
            edge = Edge("link", target, self._click(element))
            if target not in found or (edge.gestures and not found[target].gestures):
                found[target] = edge
        return list(found.values())

    def text(self, element: Element) -> str:
        """Return the text within an element, in one line."""
        if element.name:
            return " ".join(element.name.split())
        return " ".join(filter(None, map(self.text, self._inside.get(element.id, ()))))

    def forms(self) -> list[tuple[Element | None, Element | None]]:
        """Return the first field and the first button of each form that have words of their own."""
        found = []
        for form in (one for one in self.elements if one.role in ("form", "search")):
            within = [one for one in self._within(form) if one.id in self.words]
            fields = [one for one in within if one.role in ("textbox", "searchbox")]
            buttons = [one for one in within if one.role == "button"]
            found.append((next(iter(fields), None), next(iter(buttons), None)))
        return found

    # ── details ──────────────────────────────────────────────────────────────

    def _facts(self) -> list[Fact]:
        """Return terms with their definitions, and rows of a head and one cell."""
        found, term = [], ""
        for element in self.elements:
            cells = self._inside.get(element.id, []) if element.role == "row" else []
            if [one.role for one in cells] == ["rowheader", "cell"]:
                found += self._fact(self.text(cells[0]), cells[1])
            elif element.role == "term":
                term = self.text(element)
            elif element.role == "definition" and term:
                found += self._fact(term, element)
                term = ""
        return found

    def _rows(self) -> list[tuple[Fact, ...]]:
        """Return the rows of tables, by the heads of their columns."""
        found, heads = [], list[str]()
        for row in (one for one in self.elements if one.role == "row"):
            cells = [one for one in self._inside.get(row.id, ()) if one.role.endswith(HEADS)]
            if cells and all(one.role == "columnheader" for one in cells):
                heads = [self.text(one) for one in cells]
            elif len(cells) == len(heads):
                pairs = zip(heads, cells, strict=True)
                found.append(tuple(fact for head, cell in pairs for fact in self._fact(head, cell)))
        return found

    def _fact(self, label: str, element: Element) -> list[Fact]:
        value = self.text(element)
        if not label or not value or len(value) > LONG:
            return []
        leading = (self._links[one.id] for one in self._within(element) if one.id in self._links)
        return [Fact(label, value, next(leading, ""))]

    def _within(self, element: Element) -> list[Element]:
        found = []
        for one in self._inside.get(element.id, ()):
            found += [one, *self._within(one)]
        return found

    def _click(self, element: Element) -> tuple[str, ...]:
        if element.id not in self.words:
            return ()
        return (write_line(Gesture("click", Words(self.words[element.id]))),)


HEADS = ("cell", "columnheader", "rowheader")
