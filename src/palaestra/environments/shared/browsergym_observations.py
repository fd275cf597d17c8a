"""Elements in the form in which BrowserGym's agents expect a page, and back.

BrowserGym's observations hold Chromium's accessibility tree and DOM snapshot, whose nodes bear a
`bid`, and properties of each bid: its box, whether it is visible, clickable and marked. Texts have
no bid, as there.

Source: de Chezelles et al. 2024, https://github.com/ServiceNow/BrowserGym.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.browser.accessibility import element_of_node
from palaestra.core.element import Box, Element
from palaestra.core.element_text import TEXT, is_interactive, marked

ROOT = Element("root", "RootWebArea")  # around elements that have several roots, or none
UNMARKED = "ax"  # what the ids of nodes without a bid begin with
_HALF = 0.5  # from this visibility on BrowserGym takes an element as visible
_TAGS = {
    "RootWebArea": "html",
    "Iframe": "iframe",
    "LabelText": "label",
    "button": "button",
    "cell": "td",
    "checkbox": "input",
    "columnheader": "th",
    "combobox": "select",
    "form": "form",
    "heading": "h2",
    "image": "img",
    "link": "a",
    "list": "ul",
    "listbox": "select",
    "listitem": "li",
    "option": "option",
    "paragraph": "p",
    "radio": "input",
    "row": "tr",
    "searchbox": "input",
    "slider": "input",
    "spinbutton": "input",
    "table": "table",
    "textbox": "input",
}
_TYPES = {"checkbox": "checkbox", "radio": "radio", "slider": "range", "spinbutton": "number"}
_CHECKED = ("checkbox", "radio", "switch", "menuitemcheckbox", "menuitemradio")


def axtree(elements: Sequence[Element]) -> dict[str, Any]:
    """Return the accessibility tree: BrowserGym's `axtree_object`."""
    rooted = _rooted(elements)
    children: dict[str | None, list[str]] = {}
    for element in rooted:
        children.setdefault(element.parent, []).append(element.id)
    nodes = []
    for number, element in enumerate(rooted, 1):
        node: dict[str, Any] = {
            "nodeId": element.id,
            "ignored": False,
            "role": {"type": "role", "value": element.role},
            "name": {"type": "computedString", "value": element.name},
            "properties": _properties(element),
            "childIds": children.get(element.id, []),
            "backendDOMNodeId": number,
        }
        if element.value:
            node["value"] = {"type": "string", "value": element.value}
        if element.parent is not None:
            node["parentId"] = element.parent
        if element.role != TEXT:
            node["browsergym_id"] = element.id
        nodes.append(node)
    return {"nodes": nodes}


def extra_properties(elements: Sequence[Element]) -> dict[str, dict[str, Any]]:
    """Return box, visibility and marks of each bid: BrowserGym's `extra_element_properties`."""
    numbered = {element.id for element in marked(elements)}
    return {
        element.id: {
            "visibility": float(element.box is not None),
            "bbox": None if element.box is None else _corners(element.box),
            "clickable": is_interactive(element),
            "set_of_marks": element.id in numbered,
        }
        for element in _rooted(elements)
        if element.role != TEXT
    }


def dom_snapshot(elements: Sequence[Element]) -> dict[str, Any]:
    """Return a page with a tag for each element: BrowserGym's `dom_object`."""
    strings: dict[str, int] = {}

    def at(text: str) -> int:
        return strings.setdefault(text, len(strings))

    rooted = _rooted(elements)
    worded = {element.parent for element in rooted if element.role == TEXT}
    number_of: dict[str | None, int] = {None: 0}
    parents, types, names, values = [-1], [9], [at("#document")], [at("")]
    attributes: list[list[int]] = [[]]
    for element in rooted:
        number_of[element.id] = len(parents)
        parents.append(number_of[element.parent])
        text = element.role == TEXT
        types.append(3 if text else 1)
        names.append(at("#text" if text else _TAGS.get(element.role, "div").upper()))
        values.append(at(element.name if text else ""))
        pairs = {} if text else _attributes(element, element.id in worded)
        attributes.append([at(part) for pair in pairs.items() for part in pair])
    nodes = {
        "parentIndex": parents,
        "nodeType": types,
        "nodeName": names,
        "nodeValue": values,
        "attributes": attributes,
        "contentDocumentIndex": {"index": [], "value": []},
    }
    return {"documents": [{"nodes": nodes}], "strings": list(strings)}


def focused(elements: Sequence[Element]) -> str:
    """Return the bid of the element that has the focus, or an empty text."""
    found = [one.id for one in elements if "focused" in one.states and one.parent is not None]
    return found[-1] if found else ""


def read_elements(
    tree: Mapping[str, Any], properties: Mapping[str, Mapping[str, Any]]
) -> list[Element]:
    """Return the elements of an `axtree_object` and its `extra_element_properties`, in order.

    What has no bid, such as texts, has the browser's number of its node in its id (`ax12`).
    """
    nodes = {node["nodeId"]: node for node in tree["nodes"]}
    found: dict[str, Element] = {}
    stack: list[tuple[str, str | None]] = [(tree["nodes"][0]["nodeId"], None)] if nodes else []
    while stack:
        number, parent = stack.pop()
        node = nodes[number]
        bid = node.get("browsergym_id")
        id = bid or f"{UNMARKED}{node.get('backendDOMNodeId', number)}"
        known = properties.get(bid or "", {})
        if not node.get("ignored") and node["role"]["value"] != "InlineTextBox" and id not in found:
            box = _box(known) if known.get("visibility", 0) >= _HALF else None
            clickable = bool(known.get("clickable"))
            found[id] = element_of_node(node, id, box, parent, clickable)
            parent = id
        children = (child for child in reversed(node.get("childIds", ())) if child in nodes)
        stack += [(child, parent) for child in children if child != number]
    return list(found.values())


def _rooted(elements: Sequence[Element]) -> Sequence[Element]:
    """Return elements under one root, as a page of a browser has."""
    if sum(element.parent is None for element in elements) == 1:
        return elements
    return [ROOT, *(replace(one, parent=one.parent or ROOT.id) for one in elements)]


def _properties(element: Element) -> list[dict[str, Any]]:
    """Return the states as Chromium's properties."""
    found: dict[str, Any] = {"checked": "false"} if element.role in _CHECKED else {}
    for state in element.states:
        name, _, value = state.partition("=")
        if name == "collapsed":
            found["expanded"] = False
        elif name == "checked":
            found["checked"] = value or "true"
        elif name != "clickable":
            found[name] = int(value) if value.isdecimal() else value or True
    return [{"name": name, "value": {"value": value}} for name, value in found.items()]


def _attributes(element: Element, worded: bool) -> dict[str, str]:
    """Return the attributes of an element's tag.

    Args:
        element: the element.
        worded: whether text within says its name.
    """
    found = {"bid": element.id}
    if element.role in _TYPES:
        found["type"] = _TYPES[element.role]
    elif element.role not in _TAGS and element.role not in ("generic", "none"):
        found["role"] = element.role
    if element.name and not worded:
        found["aria-label"] = element.name
    if element.value:
        found["value"] = element.value
    found.update(
        {name: "" for name in ("checked", "disabled", "selected") if name in element.states}
    )
    return found


def _corners(box: Box) -> list[float]:
    return [box.x, box.y, box.width, box.height]


def _box(known: Mapping[str, Any]) -> Box | None:
    return Box(*map(float, known["bbox"])) if known.get("bbox") else None
