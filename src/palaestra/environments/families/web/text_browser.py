"""A browser that reads pages as text: links, forms and words; no scripts, and no picture.

The pages of apps need no more, so an episode here is the episode in a browser with a picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urljoin, urlsplit

from palaestra.core.element import Element
from palaestra.core.element_text import described
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Kind, Target
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.locating import element_of
from palaestra.environments.families.web.app_sites import Sites
from palaestra.environments.families.web.pages.forms import ON
from palaestra.environments.families.web.pages.page_reader import (
    PageField,
    PageForm,
    PageNode,
    PageReader,
)

KINDS: tuple[Kind, ...] = ("click", "type", "press", "select", "go", "back", "forward")
"""The gestures that it takes."""


class TextBrowser:
    """One window, with a history."""

    def __init__(self, sites: Sites, url: str) -> None:
        """Open the window at an address of the sites."""
        self._sites, self._past, self._at = sites, list[str](), -1
        self._focus: PageNode | None = None
        self._visit(url)

    @property
    def url(self) -> str:
        return self._past[self._at]

    def elements(self) -> list[Element]:
        """Return what the page shows; of hidden fields nothing."""
        return [node.element() for node in self._page.nodes]

    def state(self) -> tuple[object, ...]:
        """Return what there is beside the sites; equal states go on equally."""
        held = [list(form.sent().items()) for form in self._page.forms]
        return self._past, self._at, held, self._focus and self._focus.id, self._page.text

    def do(self, gesture: Gesture) -> None:
        """Do a gesture.

        Raises:
            InputError: it cannot be done here; nothing has changed.
        """
        match gesture.kind:
            case "click" if gesture.target is not None:
                self._click(self._node(gesture.target))
            case "type":
                self._type(gesture)
            case "press":
                self._press(gesture)
            case "select" if gesture.target is not None:
                self._select(self._node(gesture.target), gesture.text)
            case "go":
                self._visit(gesture.text)
            case "back" | "forward":
                self._turn(-1 if gesture.kind == "back" else 1)
            case _:
                raise InputError(
                    f"This browser shows text and cannot do `{write_line(gesture)}`; it takes "
                    f"{', '.join(KINDS)}, of elements that are named."
                )

    # ── gestures ─────────────────────────────────────────────────────────────

    def _node(self, target: Target) -> PageNode:
        found = element_of(target, self.elements())
        return self._page.nodes[int(found.id) - 1]

    def _click(self, node: PageNode) -> None:
        if node.role == "link":
            self._visit(urljoin(self.url, node.link))
        elif node.role == "button" and node.form is not None:
            self._send(node.form)
        elif node.role == "option" and node.field is not None:
            node.field.value = node.field.options[node.name]
        else:
            self._focus = node
            if node.field is not None and node.field.kind == "box":
                node.field.value = "" if node.field.value else ON

    def _type(self, gesture: Gesture) -> None:
        node = self._focus if gesture.target is None else self._node(gesture.target)
        field = _text_field(node)
        assert node is not None
        self._focus = node
        field.value = ("" if gesture.clear else field.value) + gesture.text
        if gesture.enter and node.form is not None:
            self._send(node.form)

    def _press(self, gesture: Gesture) -> None:
        node = self._focus if gesture.target is None else self._node(gesture.target)
        if gesture.text != "Enter":
            raise InputError(f"This browser shows text: '{gesture.text}' does nothing in it.")
        _text_field(node)
        if node is not None and node.form is not None:
            self._send(node.form)

    def _select(self, node: PageNode, text: str) -> None:
        field = node.field
        if field is None or field.kind != "choice":
            raise InputError(f"{described(node.element())} has no options to select from.")
        if text not in field.options:
            known = ", ".join(map(repr, field.options))
            raise InputError(f"{described(node.element())} has no option {text!r}, only {known}.")
        field.value, self._focus = field.options[text], node

    def _turn(self, by: int) -> None:
        if not 0 <= self._at + by < len(self._past):
            raise InputError(f"There is no page to go {'back' if by < 0 else 'forward'} to.")
        self._at += by
        self._show(self._past[self._at])

    # ── pages ────────────────────────────────────────────────────────────────

    def _send(self, form: PageForm) -> None:
        sent, url = form.sent(), urljoin(self.url, form.action)
        if form.method == "get":
            self._visit(f"{url}?{urlencode(sent)}")
        else:
            lines = {name: text.replace("\n", "\r\n") for name, text in sent.items()}
            self._visit(url, lines)

    def _visit(self, url: str, sent: Mapping[str, str] | None = None) -> None:
        """Open an address; what lay forward is forgotten."""
        shown = self._show(url, sent)
        self._past = [*self._past[: self._at + 1], shown]
        self._at += 1

    def _show(self, url: str, sent: Mapping[str, str] | None = None) -> str:
        """Show a page, and return its address: another one where it was led on."""
        page = self._sites.respond("GET" if sent is None else "POST", url, urlencode(sent or {}))
        while page is not None and page.location:
            url = urljoin(url, page.location)
            page = self._sites.respond("GET", url)
        if page is None:
            known = ", ".join(f"http://{host}/" for host in self._sites.by_host)
            raise InputError(f"No site is at {url!r}; there are {known}.")
        self._page, self._focus = PageReader(page.html), None
        return urlsplit(url).geturl()


def _text_field(node: PageNode | None) -> PageField:
    """Return the field to type into; raises InputError if a node is none."""
    if node is None:
        raise InputError("No field has the focus; name the one to type into.")
    if node.field is None or node.field.kind != "text":
        raise InputError(f"{described(node.element())} takes no text.")
    return node.field
