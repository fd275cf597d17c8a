"""Elements of a saved HTML page, read without a browser, and a page written from elements.

Each HTML element that counts carries its id in the attribute `data-webtasks-id`, and boxes lie in a
file beside the page (`weblinx_demonstrations.py`). Roles and names follow HTML-AAM and the ARIA
name computation as far as a page without layout and scripts tells them. `read_page` of what
`write_page` wrote gives the same elements; only plain texts have other ids, and the boxes of what
is around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser

from palaestra.core.element import Box, Element
from palaestra.core.element_text import INTERACTIVE, TEXT

UID = "data-webtasks-id"
LONG = 80  # characters of the name of a generic element that listens to clicks

_ROLES = {
    "html": "RootWebArea", "a": "link", "article": "article", "aside": "complementary",
    "button": "button", "dd": "definition", "dialog": "dialog", "dt": "term",
    "fieldset": "group", "footer": "contentinfo", "form": "form", "h1": "heading", "h2": "heading",
    "h3": "heading", "h4": "heading", "h5": "heading", "h6": "heading", "header": "banner",
    "iframe": "Iframe", "img": "image", "label": "LabelText", "li": "listitem", "main": "main",
    "nav": "navigation", "ol": "list", "option": "option", "p": "paragraph",
    "progress": "progressbar", "select": "combobox", "summary": "button", "svg": "image",
    "table": "table", "td": "cell", "textarea": "textbox", "th": "columnheader", "tr": "row",
    "ul": "list",
}  # fmt: skip
_INPUTS = {
    "button": "button", "checkbox": "checkbox", "file": "button", "image": "button",
    "number": "spinbutton", "radio": "radio", "range": "slider", "reset": "button",
    "search": "searchbox", "submit": "button",
}  # fmt: skip
_TAGS = {
    role: tag for tag, role in _ROLES.items() if not re.fullmatch("h[2-6]|svg|summary|ol", tag)
}
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_SILENT = frozenset("head noscript script style template".split())
_WORDED = frozenset(
    "button cell checkbox columnheader heading link menuitem menuitemcheckbox menuitemradio "
    "option radio row switch tab treeitem".split()
)
"""Roles whose name is their text, unless an attribute says another one."""
_FLAGS = (
    "checked", "disabled", "invalid", "modal", "multiline", "multiselectable", "pressed",
    "readonly", "required", "selected",
)  # fmt: skip
_NATIVE = {
    "autofocus": "focused", "checked": "checked", "disabled": "disabled",
    "multiple": "multiselectable", "readonly": "readonly", "required": "required",
    "selected": "selected",
}  # fmt: skip
_PRESENTATION = frozenset(("none", "presentation"))


def read_page(
    html: str, boxes: Mapping[str, Box] | None = None, size: tuple[int, int] | None = None
) -> list[Element]:
    """Return the elements of a page, in document order, a parent before its children.

    Args:
        html: the page.
        boxes: of its elements by their ids, in pixels of the window; None: they are not known. What
            has no area is left out.
        size: width and height of the window in pixels; what is outside of it has no box.
    """
    return list(_Page(html, boxes, size).elements())


def write_page(elements: Sequence[Element]) -> str:
    """Return a page whose elements these are; boxes are not part of it."""
    inside: dict[str | None, list[Element]] = {}
    for element in elements:
        inside.setdefault(element.parent, []).append(element)
    known = {element.id for element in elements}
    roots = [element for element in elements if element.parent not in known]
    parts: list[str] = ["<!DOCTYPE html>\n"]
    stack: list[Element | str] = list(reversed(roots))
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            parts.append(one)
            continue
        if one.role == TEXT:
            parts.append(f"{escape(one.name)}<!-- -->")  # a comment between texts keeps them apart
            continue
        children = inside.get(one.id, [])
        tag = _tag(one)
        parts.append(f"<{tag}{_attributes(one, tag, children)}>")
        if tag == "html":
            parts.append(f"<head><title>{escape(one.name)}</title></head>")
        if tag not in _VOID:
            stack += [f"</{tag}>", *reversed(children)]
    return "".join(parts)


# ── reading ──────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Node:
    """An HTML element."""

    tag: str
    attributes: Mapping[str, str]
    parent: _Node | None
    children: list[_Node | str] = field(default_factory=list)

    def get(self, name: str) -> str:
        return self.attributes.get(name, "").strip()

    @property
    def hidden(self) -> bool:
        """Whether the page says that it is not shown."""
        return (
            self.tag in _SILENT
            or "hidden" in self.attributes
            or self.get("aria-hidden") == "true"
            or (self.tag == "input" and self.get("type") == "hidden")
            or "display:none" in self.get("style").replace(" ", "")
        )

    def text(self) -> str:
        """Return the words within, those of pictures included."""
        found: list[str] = []
        stack: list[_Node | str] = [self]
        while stack:
            one = stack.pop()
            if isinstance(one, str):
                found.append(one)
            elif one is self or not one.hidden:
                found.append(one.get("alt") if one.tag == "img" else "")
                stack += reversed(one.children)
        return " ".join(" ".join(found).split())


class _Builder(HTMLParser):
    """The tree of a page; a saved page names the end of each element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = _Node("", {}, None)
        self._open = [self.root]
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around = self._open[-1]
        node = _Node(tag, {name: value or "" for name, value in attrs}, around)
        around.children.append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        at = next((n for n in range(len(self._open) - 1, 0, -1) if self._open[n].tag == tag), 0)
        if at:
            del self._open[at:]

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


class _Page:
    """A page with what its elements need to know of others."""

    def __init__(
        self, html: str, boxes: Mapping[str, Box] | None, size: tuple[int, int] | None
    ) -> None:
        self._root = _Builder(html).root
        self._boxes, self._size = boxes, size
        self._titled, self._labels = "", dict[str, str]()
        self._by_id: dict[str, _Node] = {}
        for node in _nodes(self._root):
            if node.get("id"):
                self._by_id.setdefault(node.get("id"), node)
            if node.tag == "label" and node.get("for"):
                self._labels[node.get("for")] = node.text()
            if node.tag == "title" and not self._titled:
                self._titled = node.text()

    def elements(self) -> Iterator[Element]:
        """Yield the elements in document order."""
        count = 0
        stack: list[tuple[_Node | str, str | None, Box | None]] = [(self._root, None, None)]
        while stack:
            node, parent, around = stack.pop()
            count += 1
            if isinstance(node, str):
                if words := " ".join(node.split()):
                    yield Element(f"text{count}", TEXT, words, box=around, parent=parent)
                continue
            if node.hidden:
                continue
            uid = node.get(UID)
            raw = None if self._boxes is None or not uid else self._boxes.get(uid)
            listed = node.tag in ("option", "optgroup")  # shown once their list is opened
            gone = raw is not None and raw.width * raw.height <= 0 and not listed
            role = _role(node)
            if node.parent is not None and not gone and (uid or role != "generic"):
                uid = uid or f"n{count}"
                box = None if raw is None else self._visible(raw)
                around = around if raw is None else box
                yield self._element(node, uid, role, box, parent)
                parent = uid
            if node.tag not in ("svg", "textarea"):
                shown = (one for one in node.children if not gone or isinstance(one, _Node))
                stack += reversed([(child, parent, around) for child in shown])

    def _visible(self, box: Box) -> Box | None:
        """Return a box if a part of it is in the window."""
        if self._size is None:
            return box
        width, height = self._size
        inside = box.x < width and box.y < height and box.x + box.width > 0
        return box if inside and box.y + box.height > 0 else None

    def _element(
        self, node: _Node, uid: str, role: str, box: Box | None, parent: str | None
    ) -> Element:
        states = _states(node, role)
        if role not in INTERACTIVE and _listens(node):
            states.add("clickable")
        name = self._name(node, role, "clickable" in states)
        return Element(uid, role, name, self._value(node, role), tuple(sorted(states)), box, parent)

    def _name(self, node: _Node, role: str, clickable: bool) -> str:
        if node.tag == "html":
            return self._titled
        others = [self._by_id.get(one) for one in node.get("aria-labelledby").split()]
        if words := " ".join(one.text() for one in others if one is not None):
            return words
        if label := node.get("aria-label"):
            return " ".join(label.split())
        if node.tag == "img":
            return " ".join(node.get("alt").split())
        if node.tag in ("input", "select", "textarea"):
            return self._label(node)
        if role in _WORDED:
            return node.text()
        if clickable:
            return node.text()[:LONG]
        return " ".join(node.get("title").split())

    def _label(self, node: _Node) -> str:
        """Return the name of a field: its label's words, else what it says of itself."""
        if node.tag == "input" and _INPUTS.get(node.get("type")) == "button":
            return node.get("value") or node.get("alt") or node.get("type").capitalize()
        if words := self._labels.get(node.get("id")):
            return words
        around = node.parent
        while around is not None and around.tag != "label":
            around = around.parent
        if around is not None and (words := around.text()):
            return words
        return " ".join((node.get("title") or node.get("placeholder")).split())

    def _value(self, node: _Node, role: str) -> str:
        if "aria-valuetext" in node.attributes:
            return node.get("aria-valuetext")
        if node.tag == "textarea":
            return "".join(one for one in node.children if isinstance(one, str)).strip()
        if node.tag == "input" and role not in ("button", "checkbox", "radio"):
            return node.get("value")
        if node.tag == "select":
            options = [one for one in _nodes(node) if one.tag == "option"]
            chosen = [one for one in options if "selected" in one.attributes]
            return next((one.text() for one in [*chosen, *options]), "")
        return ""


def _nodes(root: _Node) -> Iterator[_Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed([one for one in node.children if isinstance(one, _Node)])


def _role(node: _Node) -> str:
    said = next(iter(node.get("role").split()), "")
    if said and said not in _PRESENTATION:
        return said
    if node.tag == "input":
        return _INPUTS.get(node.get("type").lower(), "textbox")
    if node.tag == "a" and "href" not in node.attributes:
        return "generic"
    if node.get("contenteditable") in ("true", "plaintext-only"):
        return "textbox"
    return "generic" if said else _ROLES.get(node.tag, "generic")


def _listens(node: _Node) -> bool:
    tab = node.get("tabindex")
    return "onclick" in node.attributes or (tab.isdigit() and node.tag not in ("html", "body"))


def _states(node: _Node, role: str) -> set[str]:
    states = {state for name, state in _NATIVE.items() if name in node.attributes}
    for flag in _FLAGS:
        value = node.get(f"aria-{flag}")
        if value not in ("", "false"):
            states.add(flag if value == "true" else f"{flag}={value}")
    if expanded := node.get("aria-expanded"):
        states.add("expanded" if expanded == "true" else "collapsed")
    if node.tag == "textarea":
        states.add("multiline")
    level = node.get("aria-level") or (node.tag[1:] if re.fullmatch("h[1-6]", node.tag) else "")
    if role == "heading" and level:
        states.add(f"level={level}")
    return states


# ── writing ──────────────────────────────────────────────────────────────────


def _tag(element: Element) -> str:
    if element.role == "heading":
        level = next((one[6:] for one in element.states if one.startswith("level=")), "")
        return f"h{level}" if level in tuple("123456") else "div"
    if element.role in ("combobox", "option"):
        return "div"  # an HTML list holds options only, and chooses one by itself
    if element.role == "textbox":
        return "input"
    return _TAGS.get(element.role) or ("input" if element.role in _INPUTS.values() else "div")


def _attributes(element: Element, tag: str, children: Sequence[Element]) -> str:
    given = {UID: element.id}
    if tag == "a":
        given["href"] = "#"
    if tag == "input":
        kinds = {role: kind for kind, role in _INPUTS.items() if role != "button"}
        given["type"] = kinds.get(element.role, "text")
        if element.value:
            given["value"] = element.value
    elif element.value:
        given["aria-valuetext"] = element.value
    if tag == "div":
        given["role"] = element.role
    if tag != "html" and not _is_said(element, tag, children):
        given["aria-label"] = element.name
    for state in element.states:
        given |= _state_attribute(state, tag)
    return "".join(f' {name}="{escape(value)}"' for name, value in given.items())


def _is_said(element: Element, tag: str, children: Sequence[Element]) -> bool:
    """Return whether reading gives the element its name without an attribute."""
    said = len(children) == 1 and children[0].role == TEXT and children[0].name == element.name
    worded = element.role in _WORDED and tag not in _VOID
    return said if worded and element.name else not element.name and not worded


def _state_attribute(state: str, tag: str) -> dict[str, str]:
    name, _, value = state.partition("=")
    if name == "level":
        return {} if tag == f"h{value}" else {"aria-level": value}
    if name in ("expanded", "collapsed"):
        return {"aria-expanded": "true" if name == "expanded" else "false"}
    if name == "focused":
        return {"autofocus": ""}
    if name == "clickable":
        return {"onclick": ""}
    return {f"aria-{name}": value or "true"}
