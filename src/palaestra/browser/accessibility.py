"""Elements of a page: Chromium's accessibility tree, with the boxes of its layout.

Frames are joined to the page that holds them; shadow trees are part of the accessibility tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestra.browser.devtools import Parameters
from palaestra.browser.tab import Tab
from palaestra.core.element import Box, Element
from palaestra.core.element_text import INTERACTIVE

STYLES = ("overflow-x", "overflow-y", "position", "display")
LONG = 80  # characters of a name that is made of the words within
_LEFT_OUT = frozenset(("InlineTextBox", "LineBreak"))
_WHOLE = (
    "#document",
    "HTML",
    "BODY",
    "LABEL",
)  # whose clicks are meant for elements within, or for a field
_FLAGS = (
    "disabled",
    "focused",
    "modal",
    "multiline",
    "multiselectable",
    "readonly",
    "required",
    "selected",
)
_VALUED = ("checked", "invalid", "pressed")  # "true" is the state itself; else "checked=mixed"


@dataclass(frozen=True, slots=True)
class Document:
    """The layout of one document: boxes by node, in pixels of the picture."""

    frame: str
    holder: int | None  # the node of the frame element around it
    boxes: Mapping[int, Box | None]
    points: Mapping[int, tuple[float, float]]  # of what its lines leave the middle of its box free
    clickable: frozenset[int]  # nodes that listen to clicks


class PageTree:
    """What the browser says about the page of a tab at one moment, as it says it."""

    def __init__(self, tab: Tab) -> None:
        """Ask the browser.

        Args:
            tab: whose page is at rest.
        """
        asked = [
            tab.send("Accessibility.getFullAXTree"),
            tab.send("DOMSnapshot.captureSnapshot", computedStyles=list(STYLES)),
        ]
        tree, self._snapshot = tab.connection.wait(asked)
        self._nodes: Sequence[Parameters] = tree["nodes"]
        self._documents = list(_documents(self._snapshot, tab.session.size))
        self._held: dict[int, Sequence[Parameters]] = {}
        for document in self._documents[1:]:
            if document.holder is not None:
                found = tab.call("Accessibility.getFullAXTree", frameId=document.frame)
                self._held[document.holder] = found["nodes"]
        self.nodes = self._found_nodes()
        """The names of nodes in a fixed order, by the browser's number: first those of documents
        and their shadow trees, then those within fields that are shown."""

    def elements(
        self, id_of: Callable[[int], str]
    ) -> tuple[list[Element], dict[str, int], dict[str, str]]:
        """Return the elements, the node of each, and where links lead, by id.

        Args:
            id_of: the element's id of a node, the same at each call.
        """
        boxes: dict[int, Box | None] = {}
        points: dict[int, tuple[float, float]] = {}
        clickable: set[int] = set()
        for document in self._documents:
            boxes.update(document.boxes)
            points.update(document.points)
            clickable |= document.clickable
        elements: list[Element] = []
        nodes: dict[str, int] = {}
        links: dict[str, str] = {}
        for node, parent in _walk(self._nodes, self._held, clickable):
            number = node["backendDOMNodeId"]
            id = id_of(number)
            if id in nodes:
                continue  # a node with two entries: a list item and its marker
            nodes[id] = number
            known = parent if parent is None else id_of(parent)
            element = element_of_node(node, id, boxes.get(number), known, number in clickable)
            if number in points:
                element = replace(element, inside=points[number])
            elements.append(element)
            if element.role == "link" and (address := _address(node)):
                links[id] = address
        return elements, nodes, links

    def _found_nodes(self) -> dict[int, str]:
        strings, found = self._snapshot["strings"], dict[int, str]()
        for document in self._snapshot["documents"]:
            nodes = document["nodes"]
            names = (strings[at] for at in nodes["nodeName"])
            found.update(zip(nodes["backendNodeId"], names, strict=True))
        for tree in (self._nodes, *self._held.values()):
            for node in tree:
                number = node.get("backendDOMNodeId")
                if number is not None and number not in found:
                    found[number] = _text(node, "role")
        return found


def _walk(
    nodes: Sequence[Parameters],
    held: Mapping[int, Sequence[Parameters]],
    clickable: Collection[int],
) -> Iterator[tuple[Parameters, int | None]]:
    """Yield the nodes that count, in document order, each with the node of its parent."""
    trees = [({node["nodeId"]: node for node in nodes}, nodes[0], None)]
    stack: list[tuple[Mapping[str, Parameters], Parameters, int | None]] = list(trees)
    while stack:
        tree, node, parent = stack.pop()
        number = node.get("backendDOMNodeId")
        around = parent
        if number is not None and (not node.get("ignored") or number in clickable):
            if _text(node, "role") in _LEFT_OUT:
                continue
            if number in clickable and not _text(node, "name"):
                node = {**node, "name": {"value": _words(tree, node)}}
            yield node, parent
            around = number
        inside = held.get(number) if number is not None else None
        if inside:
            stack.append(({one["nodeId"]: one for one in inside}, inside[0], around))
        for child in reversed(node.get("childIds", ())):
            if child in tree:
                stack.append((tree, tree[child], around))


def _words(tree: Mapping[str, Parameters], node: Parameters) -> str:
    """Return the text within a node that has no name of its own; of a long one, its beginning."""
    found: list[str] = []
    stack = [node]
    while stack and sum(map(len, found)) < LONG:
        one = stack.pop()
        if _text(one, "role") == "StaticText":
            found.append(_text(one, "name"))
        stack += [tree[child] for child in reversed(one.get("childIds", ())) if child in tree]
    return " ".join(" ".join(found).split())[:LONG]


def element_of_node(
    node: Parameters, id: str, box: Box | None, parent: str | None, clickable: bool
) -> Element:
    """Return the element of a node of Chromium's accessibility tree.

    What listens to clicks, but has no role that says so, has the state `clickable`.
    """
    properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
    states = [name for name in _FLAGS if properties.get(name) is True]
    for name in _VALUED:
        value = properties.get(name)
        if value not in (None, False, "false"):
            states.append(name if value in (True, "true") else f"{name}={value}")
    if "expanded" in properties:
        states.append("expanded" if properties["expanded"] else "collapsed")
    if "level" in properties:
        states.append(f"level={properties['level']}")
    role = "generic" if node.get("ignored") else _text(node, "role")
    if clickable and role not in INTERACTIVE:
        states.append("clickable")
    return Element(
        id, role, _text(node, "name"), _text(node, "value"), tuple(sorted(states)), box, parent
    )


def _address(node: Parameters) -> str:
    """Return the address of a link; empty where a script does what it does."""
    found = (one for one in node.get("properties", ()) if one["name"] == "url")
    return next((str(one["value"].get("value", "")) for one in found), "")


def _text(node: Parameters, field: str) -> str:
    value: Any = node.get(field, {}).get("value", "")
    return value if isinstance(value, str) else str(value)


# ── layout ───────────────────────────────────────────────────────────────────


def _documents(snapshot: Parameters, size: tuple[int, int]) -> Iterator[Document]:
    """Yield the page's document and those of its frames, each after the one that holds it."""
    strings = snapshot["strings"]
    window = Box(0.0, 0.0, *map(float, size))
    # document → (the node that holds it, where its upper left corner is, what is visible of it)
    places: dict[int, tuple[int | None, float, float, Box | None]] = {0: (None, 0.0, 0.0, window)}
    for index, document in enumerate(snapshot["documents"]):
        if index not in places:
            continue
        holder, left, top, visible = places[index]
        left -= document.get("scrollOffsetX", 0.0)
        top -= document.get("scrollOffsetY", 0.0)
        nodes, layout = document["nodes"], document["layout"]
        row_of = {node: row for row, node in enumerate(layout["nodeIndex"])}
        clips = _Clips(nodes["parentIndex"], row_of, layout, strings, left, top, visible)
        contents = nodes.get("contentDocumentIndex", {"index": (), "value": ()})
        for node, inner in zip(contents["index"], contents["value"], strict=True):
            if node in row_of:
                box = clips.box(node)
                x, y, _, _ = layout["bounds"][row_of[node]]
                places[inner] = (nodes["backendNodeId"][node], left + x, top + y, box)
        numbers = nodes["backendNodeId"]
        boxes = {numbers[node]: clips.box(node) for node in row_of}
        points = {numbers[node]: point for node, point in clips.points(document["textBoxes"])}
        listening = {numbers[node] for node in nodes["isClickable"]["index"] if node in row_of}
        outer = {numbers[n] for n, at in enumerate(nodes["nodeName"]) if strings[at] in _WHOLE}
        clickable = frozenset(listening - outer)
        yield Document(strings[document["frameId"]], holder, boxes, points, clickable)


class _Clips:
    """What is visible of the nodes of one document: boxes cut off by those that hide overflow."""

    def __init__(
        self,
        parents: Sequence[int],
        row_of: Mapping[int, int],
        layout: Parameters,
        strings: Sequence[str],
        left: float,
        top: float,
        visible: Box | None,
    ) -> None:
        self._parents, self._row_of, self._bounds = parents, row_of, layout["bounds"]
        self._nodes = layout["nodeIndex"]
        self._styles = [[strings[at] if at >= 0 else "" for at in row] for row in layout["styles"]]
        self._left, self._top, self._visible = left, top, visible
        self._clips: dict[tuple[int, bool], Box | None] = {}

    def box(self, node: int) -> Box | None:
        """Return what is visible of a node; None: nothing."""
        row = self._row_of[node]
        position = self._style(row)[2]
        if position == "fixed":
            return _common(self._own(row), self._visible)
        return _common(self._own(row), self._clip(self._parents[node], position == "absolute"))

    def points(self, texts: Parameters) -> Iterator[tuple[int, tuple[float, float]]]:
        """Yield inline nodes whose lines lie around the middle of their boxes, and a point of each.

        The point is the middle of the first line that is seen.

        Args:
            texts: the text boxes of the document: one for each line of each text.
        """
        lines: dict[int, list[Sequence[float]]] = {}
        for row, bounds in zip(texts["layoutIndex"], texts["bounds"], strict=True):
            node = self._nodes[row]
            while True:
                lines.setdefault(node, []).append(bounds)
                node = self._parents[node]
                if node not in self._row_of or self._style(self._row_of[node])[3] != "inline":
                    break
        for node, found in lines.items():
            seen = self.box(node) if len(found) > 1 else None
            if seen is None:
                continue
            boxes = [_common(self._moved(bounds), seen) for bounds in found]
            if not any(box and box.contains(*seen.centre) for box in boxes):
                first = next((box for box in boxes if box), None)
                if first is not None:
                    yield node, first.centre

    def _clip(self, node: int, absolute: bool) -> Box | None:
        """Return the area in which the children of a node are visible; None: nowhere.

        An absolutely positioned child is cut off only by ancestors from its positioned one on.
        """
        if node < 0:
            return self._visible
        key = (node, absolute)
        if key not in self._clips:
            self._clips[key] = self._found_clip(node, absolute)
        return self._clips[key]

    def _found_clip(self, node: int, absolute: bool) -> Box | None:
        row = self._row_of.get(node)
        if row is None:
            return self._clip(self._parents[node], absolute)
        across, down, position, _ = self._style(row)
        if absolute and position in ("", "static"):
            return self._clip(self._parents[node], True)
        hides = {across, down} - {"", "visible"} and self._parents[self._parents[node]] >= 0
        above = (
            self._visible
            if position == "fixed"
            else self._clip(self._parents[node], position == "absolute")
        )
        return _common(self._own(row), above) if hides else above

    def _own(self, row: int) -> Box:
        return self._moved(self._bounds[row])

    def _moved(self, bounds: Sequence[float]) -> Box:
        """Return the box, in the picture, of what has these bounds in the document."""
        x, y, width, height = bounds
        return Box(x + self._left, y + self._top, max(width, 0.0), max(height, 0.0))

    def _style(self, row: int) -> list[str]:
        found = self._styles[row]
        return found if len(found) == len(STYLES) else ["", "", "", ""]


def _common(box: Box, other: Box | None) -> Box | None:
    """Return where two boxes overlap; None: nowhere."""
    if other is None:
        return None
    left, top = max(box.x, other.x), max(box.y, other.y)
    right = min(box.x + box.width, other.x + other.width)
    bottom = min(box.y + box.height, other.y + other.height)
    if right <= left or bottom <= top:
        return None
    return Box(left, top, right - left, bottom - top)
