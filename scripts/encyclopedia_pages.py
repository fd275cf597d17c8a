"""The encyclopedia of the atlas read as text, and two kinds of tasks in it.

The pages are those of `sites/world-…` (242 countries with eight sections each, of the CIA World
Factbook), answered by the same site and read by the text browser of `web/…`: a page is there in
milliseconds, which a search of thousands of page loads needs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import urljoin, urlsplit

from palaestra.browser.sites import Request
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused
from palaestra.environments.families.real_sites.atlas.countries import (
    FACTS,
    SECTIONS,
    countries,
)
from palaestra.environments.families.real_sites.atlas.encyclopedia import (
    HOST,
    Encyclopedia,
    path_of,
)
from palaestra.environments.families.web.pages.app_site import AppSite, Page
from palaestra.environments.families.web.pages.page_reader import PageReader
from palaestra.environments.families.web.text_browser import TextBrowser
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits
from palaestra.sandbox.factory import open_sandbox


class EncyclopediaPages:
    """Answers the requests of a text browser; each page is made once."""

    by_host: Mapping[str, AppSite] = {}

    def __init__(self) -> None:
        self._site, self._known = Encyclopedia(), dict[str, Page]()
        self._frame = self._site.frame(0)

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        parts = urlsplit(url)
        if f"http://{parts.netloc}" != HOST or parts.path.startswith("/saved"):
            return None  # the reading list is a person's, and there is none
        if url not in self._known:
            made = self._site.answer(None, Request(method, url), self._frame)  # type: ignore[arg-type]
            self._known[url] = Page(made.status, made.body.decode())
        return self._known[url]


PAGES = EncyclopediaPages()


class OpenSections(Adapter, capabilities={"state_key", "snapshot"}, typical_turns=30):
    """Sections of articles have to be opened, one after the other, by clicks alone."""

    instructions = "Use the pages of an encyclopedia. Reply with one gesture: click [id]."
    PARTS = 3

    def _begin(self, task: Task) -> Observation:
        self._draw(task)
        self.opened, self.url = 0, f"{HOST}/"
        parts = "; then ".join(
            f"open the section '{section}' about {name} in {countries()[name].region}"
            for name, section in self.wanted
        )
        return Observation(f"Task: {parts}.\n{page_at(self.url)[0]}")

    def _draw(self, task: Task) -> None:
        rng = random.Random(f"sections {task.id} {task.seed}")
        names = rng.sample(sorted(countries()), self.PARTS)
        self.wanted = [(name, rng.choice(SECTIONS)) for name in names]

    def _act(self, action: Action) -> Transition:
        clicked = re.fullmatch(r"\s*click \[(\d+)\]\s*", action.text)
        link = page_at(self.url)[1].get(clicked[1]) if clicked else None
        if link is None or PAGES.respond("GET", link) is None:
            return refused("That is no link to another page of the encyclopedia.")
        self.url = link
        name, section = self.wanted[self.opened]
        self.opened += urlsplit(link).path == path_of(name, section)
        done = self.opened == len(self.wanted)
        shown = Observation(page_at(link)[0])
        return Transition(shown, float(done), terminated=done, success=done)

    def state_key(self) -> str:
        return hashed(self._current().id, self.opened, self.url)

    def snapshot(self) -> bytes:
        return self._saved(json.dumps([self.opened, self.url]).encode(), "1")

    def restore(self, snapshot: bytes) -> None:
        self.opened, self.url = json.loads(self._loaded(snapshot, "1"))
        self._draw(self._current())


@cache
def page_at(url: str) -> tuple[str, Mapping[str, str]]:
    """Return a page as text, and the addresses of its links by their ids."""
    page = PAGES.respond("GET", url)
    assert page is not None
    nodes = PageReader(page.html).nodes
    links = {node.id: urljoin(url, node.link) for node in nodes if node.link}
    return f"{url}\n{flat([node.element() for node in nodes])}", links


class Research(Adapter, typical_turns=40):
    """A sum over countries that a file lists, of numbers that the encyclopedia has."""

    instructions = (
        "You answer a question with an encyclopedia (click [id], type [id] 'text' clear), files "
        "(read NAME) and Python (python CODE). At the end: answer NUMBER."
    )
    COUNTRIES = 3
    FACT = "population"

    def _begin(self, task: Task) -> Observation:
        rng = random.Random(f"research {task.id} {task.seed}")
        known = [name for name, one in countries().items() if one.number(self.FACT) is not None]
        shares = {name: rng.randint(2, 9) for name in rng.sample(known, self.COUNTRIES)}
        self._file = "\n".join(["country,weight", *(f"{n},{w}" for n, w in shares.items())])
        numbers = {name: countries()[name].number(self.FACT) or 0 for name in shares}
        self.right = sum(int(numbers[name]) * weight for name, weight in shares.items())
        self._browser = TextBrowser(PAGES, f"{HOST}/")
        fact = FACTS[self.FACT]
        return Observation(
            f"Question: for the countries in list.csv, what is the sum of '{fact.label}' (section "
            f"'{fact.section}' of the encyclopedia) times weight?\n{page_of(self._browser)}"
        )

    def _act(self, action: Action) -> Transition:
        verb, _, rest = action.text.partition(" ")
        if verb == "answer":
            right = rest.strip() == str(self.right)
            return Transition(Observation("Over."), float(right), terminated=True, success=right)
        if verb == "read":
            found = self._file if rest == "list.csv" else f"There is no file {rest}."
            return Transition(Observation(found))
        if verb == "python":
            return Transition(Observation(self._ran(rest)))
        try:
            self._browser.do(gesture_in(action))
        except InputError as wrong:
            return refused(str(wrong))
        return Transition(Observation(page_of(self._browser)))

    def _ran(self, code: str) -> str:
        """Run code in a sandbox; each run begins with nothing defined."""
        box = open_sandbox("auto", interpreter.settings("auto", Limits(seconds=20.0)))
        python = interpreter.Interpreter(box)
        try:
            return str(python.run(code))
        finally:
            python.close()
            box.close()


def page_of(browser: TextBrowser) -> str:
    return f"{browser.url}\n{flat(browser.elements())}"
