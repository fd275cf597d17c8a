"""What a page of a site has, read from its HTML: elements, links, and forms with their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Literal

from palaestra.core.element import Element
from palaestra.core.element_text import TEXT
from palaestra.environments.families.web.pages.forms import ON

ROLES = {
    "header": "banner",
    "nav": "navigation",
    "main": "main",
    "h1": "heading",
    "p": "paragraph",
    "table": "table",
    "tr": "row",
    "th": "columnheader",
    "td": "cell",
    "dt": "term",
    "dd": "definition",
    "label": "LabelText",
    "a": "link",
    "button": "button",
    "textarea": "textbox",
    "select": "combobox",
    "option": "option",
}
"""The role of an HTML element, as in Chromium's accessibility tree; others group only."""

WHOLE = ("a", "button", "label", "option", "textarea")  # what their text means is known at the end
SILENT = ("style", "title")  # whose text is not shown


@dataclass
class PageField:
    """A field of a form."""

    name: str
    label: str = ""
    kind: Literal["text", "box", "choice", "hidden"] = "text"
    value: str = ""  # what is sent: of a box `ON` or nothing
    options: dict[str, str] = field(default_factory=dict)  # what is sent, by what is shown

    @property
    def shown(self) -> str:
        """What it shows: of a choice the words of the option."""
        return next((word for word, sent in self.options.items() if sent == self.value), self.value)


@dataclass
class PageForm:
    """A form, with its fields by name."""

    method: str
    action: str
    fields: dict[str, PageField] = field(default_factory=dict)
    button: str = ""

    def sent(self) -> dict[str, str]:
        """Return what a browser sends; nothing of a box that is not ticked."""
        return {
            name: one.value for name, one in self.fields.items() if one.kind != "box" or one.value
        }


@dataclass
class PageNode:
    """An element of the page, and what it leads to."""

    id: str
    role: str
    parent: str | None
    name: str = ""
    states: tuple[str, ...] = ()
    link: str = ""  # of a link: its address
    form: PageForm | None = None  # of what belongs to one
    field: PageField | None = None  # of an input; of an option, the choice that it belongs to

    def element(self) -> Element:
        """Return it as it is now."""
        name, value, states = self.name, "", self.states
        if self.field is not None and self.role == "option":
            chosen = self.field.shown == self.name
            states = ("selected",) if chosen else ()
        elif self.field is not None:
            name, value = self.field.label, self.field.shown
            if self.field.kind == "box":
                value, states = "", ("checked",) if self.field.value else ()
        return Element(self.id, self.role, name, value, states, parent=self.parent)


class PageReader(HTMLParser):
    """A page that was read. Ids of nodes count from 1 in document order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.title = ""
        self.nodes = [PageNode("1", "RootWebArea", None)]
        self.links: list[tuple[str, str]] = []
        self.forms: list[PageForm] = []
        self._open = [("", self.nodes[0])]  # the elements around, each by its tag
        self._silent = ""
        self._whole: PageNode | None = None  # whose text is being read
        self._read = self._key = ""
        self._select: PageField | None = None
        self.feed(html)
        self.close()
        self.nodes[0].name = self.title

    @property
    def text(self) -> str:
        """All words of the page."""
        return "\n".join(node.name for node in self.nodes if node.name)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag in SILENT:
            self._silent, self._read = tag, ""
        elif tag == "form":
            self.forms.append(PageForm(given["method"], given["action"]))
        elif tag == "input":
            self._add_input(given)
        elif tag == "img":
            self._add("image").name = given.get("alt", "")
        elif tag in ROLES:
            node = self._add(given.get("role") or ROLES[tag])
            if tag == "h1":
                node.states = ("level=1",)
            self._open.append((tag, node))
            if tag == "select":
                node.form, node.field = self.forms[-1], self._field(given["name"])
                node.field.kind, self._select = "choice", node.field
            elif tag in WHOLE:
                self._whole, self._read = node, ""
                key = {"a": "href", "label": "for", "option": "value", "textarea": "name"}
                self._key = given.get(key.get(tag, ""), "")
                if tag == "option" and self._select is not None:
                    node.field = self._select
                    if "selected" in given or not self._select.options:
                        self._select.value = self._key

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self.title = self._read.strip() if tag == "title" else self.title
            self._silent = ""
        elif tag in WHOLE and self._whole is not None:
            self._end(tag, self._whole)
            self._whole = None
        if self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._silent or self._whole is not None:
            self._read += data
        elif words := " ".join(data.split()):
            self._add(TEXT).name = words

    def _end(self, tag: str, node: PageNode) -> None:
        """Give the text that was read to what it belongs to."""
        text = " ".join(self._read.split())
        if tag == "textarea":
            node.form, node.field = self.forms[-1], self._field(self._key)
            node.field.value, node.states = self._read.removeprefix("\n"), ("multiline",)
            return
        node.name = text
        if tag == "a":
            node.link = self._key
            self.links.append((text, self._key))
        elif tag == "label":
            self._field(self._key).label = text
        elif tag == "button":
            node.form = self.forms[-1]
            self.forms[-1].button = text
        elif self._select is not None:
            self._select.options[text] = self._key

    def _add(self, role: str) -> PageNode:
        node = PageNode(str(len(self.nodes) + 1), role, self._open[-1][1].id)
        self.nodes.append(node)
        return node

    def _add_input(self, given: dict[str, str]) -> None:
        one = self._field(given["name"])
        if given["type"] == "hidden":
            one.kind, one.value = "hidden", given.get("value", "")
            return
        box = given["type"] == "checkbox"
        node = self._add("checkbox" if box else "textbox")
        node.form, node.field = self.forms[-1], one
        one.kind = "box" if box else "text"
        one.value = (ON if "checked" in given else "") if box else given.get("value", "")

    def _field(self, name: str) -> PageField:
        return self.forms[-1].fields.setdefault(name, PageField(name))
