"""Gestures that make calls on the pages of apps, beginning at any page.

Somebody who knows the way: they go from page to page by links where one leads there, by its address
else, fill in what a form does not hold yet, and send it. Targets are words, so gestures on pages
that are not open yet can be written down. All of it is tried on a copy of the world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from palaestra.core.bm25 import words
from palaestra.core.element import Element
from palaestra.core.gesture import Gesture, Words
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.web.app_sites import host_of
from palaestra.environments.families.web.pages.app_site import AppSite, Page
from palaestra.environments.families.web.pages.following import Fill, Open, steps_of
from palaestra.environments.families.web.pages.forms import ON
from palaestra.environments.families.web.pages.page_reader import PageField, PageForm, PageReader

FIELDS = ("textbox", "combobox", "checkbox")
CALLED = {"text": "field", "box": "checkbox", "choice": "combobox", "hidden": ""}
"""What people call fields of a form."""


class PageSource(Protocol):
    """Who answers requests, as `AppSites` does."""

    @property
    def by_host(self) -> Mapping[str, AppSite]:
        """The sites of apps."""
        ...

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        """Answer a request; None: no site has that host."""
        ...


class Walk:
    """Somebody who uses the sites of a copy of a world, and writes down the gestures."""

    def __init__(self, sites: PageSource, url: str, elements: Sequence[Element] = ()) -> None:
        """Begin at a page.

        Args:
            sites: of the copy.
            url: of the page that is open.
            elements: what it shows: its fields may be filled in already.
        """
        self.sites, self.gestures = sites, list[Gesture]()
        self._show(url)
        shown = {one.name: one for one in elements if one.role in FIELDS}
        for form in self.page.forms:
            for field in form.fields.values():
                if (one := shown.get(field.label)) is not None:
                    field.value = _held(field, one)

    def make(self, calls: Sequence[Call]) -> None:
        """Make calls of APIs."""
        for call in calls:
            app, _, api = call.api.partition(".")
            site = self.sites.by_host[host_of(app)]
            for step in steps_of(site.app, api, call.arguments):
                if isinstance(step, Open):
                    self._go(f"http://{host_of(app)}{step.path}")
                elif isinstance(step, Fill):
                    self._fill(step.field, step.text)
                else:
                    self._send()

    def _go(self, url: str) -> None:
        """Open a page, unless it is open and nothing was sent from it."""
        if url == self.url and self._form("post") is not None:
            return
        parts = urlsplit(url)
        if parts.netloc != urlsplit(self.url).netloc:
            self._click(f"http://{parts.netloc}/")
        if self._click(url) or self._ask(url) or self._go_by_row(url):
            return
        self.gestures.append(Gesture("go", text=url))
        self._show(url)

    def _click(self, url: str) -> bool:
        """Follow a link to a page, if there is one whose words are no other's."""
        leads = [text for text, link in self.page.links if urljoin(self.url, link) == url]
        leads.sort(key=str.isdecimal)  # names before numbers
        clear = [target for text in leads if (target := self._named(text, "link")) is not None]
        if not clear:
            return False
        self.gestures.append(Gesture("click", clear[0]))
        self._show(url)
        return True

    def _ask(self, url: str) -> bool:
        """Open a page by a form that asks for it, if that has a field for each wish."""
        page, _, query = url.partition("?")
        wanted = dict(parse_qsl(query))
        if not wanted:
            return False
        form = self._asking(page, wanted)
        if form is None and self.url.partition("?")[0] != page and self._click(page):
            form = self._asking(page, wanted)
        if form is None:
            return False
        for name, text in wanted.items():
            self._put(form.fields[name], text)
        self._click_button(form)
        self._show(f"{page}?{urlencode(form.sent())}")
        return True

    def _asking(self, page: str, wanted: Mapping[str, str]) -> PageForm | None:
        """Return the form of the open page that asks for rows of another one with these wishes."""
        for form in self.page.forms:
            if form.method != "get" or urljoin(self.url, form.action) != page:
                continue
            hidden = {name: one.value for name, one in form.fields.items() if one.kind == "hidden"}
            if wanted.keys() <= form.fields.keys() and hidden.items() <= wanted.items():
                return form
        return None

    def _go_by_row(self, url: str) -> bool:
        """Open a page from that of the row that it is about."""
        page, _, query = url.partition("?")
        key = query.partition("=")[0]
        row = f"{page.rpartition('/')[0]}/show_{key.removesuffix('_id')}?{query}"
        return self._click(row) and self._click(url)

    def _fill(self, name: str, text: str) -> None:
        form = self._form("post")
        assert form is not None
        self._put(form.fields[name], text)

    def _put(self, field: PageField, text: str) -> None:
        """Let a field hold a text, as it is sent."""
        if field.value == text:
            return
        target = self._named(field.label, CALLED[field.kind])
        assert target is not None
        if field.kind == "box":
            gesture = Gesture("click", target)
        elif field.kind == "choice":
            shown = next(shown for shown, sent in field.options.items() if sent == text)
            gesture = Gesture("select", target, text=shown)
        else:
            gesture = Gesture("type", target, text=text, clear=bool(field.value))
        field.value = text
        self.gestures.append(gesture)

    def _send(self) -> None:
        form = self._form("post")
        assert form is not None
        self._click_button(form)
        sent = {name: text.replace("\n", "\r\n") for name, text in form.sent().items()}
        self._show(urljoin(self.url, form.action), urlencode(sent))

    def _form(self, method: str) -> PageForm | None:
        return next((form for form in self.page.forms if form.method == method), None)

    def _named(self, name: str, role: str) -> Words | None:
        """Return the words for an element; None if others are called the same."""
        there = [(link, "link") for link, _ in self.page.links]
        for form in self.page.forms:
            there.append((form.button, "button"))
            there += [(one.label, CALLED[one.kind]) for one in form.fields.values()]
        roles = [other for called, other in there if words(called) == words(name)]
        if not words(name) or roles.count(role) != 1:
            return None
        return Words(name if len(roles) == 1 else f"{name} {role}")

    def _click_button(self, form: PageForm) -> None:
        target = self._named(form.button, "button")
        assert target is not None
        self.gestures.append(Gesture("click", target))

    def _show(self, url: str, body: str | None = None) -> None:
        page = self.sites.respond("GET" if body is None else "POST", url, body or "")
        while page is not None and page.location:
            url = urljoin(url, page.location)
            page = self.sites.respond("GET", url)
        assert page is not None
        self.url, self.page = url, PageReader(page.html)


def _held(field: PageField, shown: Element) -> str:
    """Return what a form sends for a field that shows something."""
    if field.kind == "box":
        return ON if "checked" in shown.states else ""
    return field.options.get(shown.value, shown.value)
