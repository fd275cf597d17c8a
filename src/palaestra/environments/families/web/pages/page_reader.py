"""What a page of a site has, read from its HTML: links, and forms with their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Literal

from palaestra.environments.families.web.pages.forms import ON

SILENT = ("style", "title")  # elements whose text is not shown


@dataclass
class PageField:
    """A field of a form."""

    label: str = ""
    kind: Literal["text", "box", "choice", "hidden"] = "text"
    value: str = ""  # what is sent: of a box `ON` or nothing
    options: dict[str, str] = field(default_factory=dict)  # what is sent, by what is shown


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


class PageReader(HTMLParser):
    """The links (text and address), forms and words of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.forms: list[PageForm] = []
        self.text = ""
        self._silent = ""
        self._into: str | None = None  # text goes to: a link, a label, a button, an option, an area
        self._key = self._read = self._select = ""
        self._chosen = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag in SILENT:
            self._silent = tag
        elif tag == "form":
            self.forms.append(PageForm(given["method"], given["action"]))
        elif tag == "input":
            self._add_input(given)
        elif tag == "select":
            self._select = given["name"]
            self._field(self._select).kind = "choice"
        elif tag in ("a", "label", "button", "option", "textarea"):
            self._into, self._read = tag, ""
            key = {"a": "href", "label": "for", "option": "value", "textarea": "name"}.get(tag, "")
            self._key = given.get(key, "")
            self._chosen = "selected" in given

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = ""
        if tag != self._into:
            return
        text = self._read if tag == "textarea" else " ".join(self._read.split())
        if tag == "a":
            self.links.append((text, self._key))
        elif tag == "label":
            self._field(self._key).label = text
        elif tag == "button":
            self.forms[-1].button = text
        elif tag == "textarea":
            self._field(self._key).value = text.removeprefix("\n")
        else:
            choice = self._field(self._select)
            if self._chosen or not choice.options:
                choice.value = self._key
            choice.options[text] = self._key
        self._into = None

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._read += data
            self.text += data

    def _add_input(self, given: dict[str, str]) -> None:
        one = self._field(given["name"])
        if given["type"] == "checkbox":
            one.kind, one.value = "box", ON if "checked" in given else ""
        else:
            one.kind = "hidden" if given["type"] == "hidden" else "text"
            one.value = given.get("value", "")

    def _field(self, name: str) -> PageField:
        return self.forms[-1].fields.setdefault(name, PageField())
