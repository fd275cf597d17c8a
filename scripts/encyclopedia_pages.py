"""The encyclopedia of the atlas read as text, and two kinds of tasks in it.

The pages are those of `sites/world-…` (242 countries with eight sections each, of the CIA World
Factbook), answered by the same site and read as text as by the text browser of `web/…`: a page is
there in a millisecond, which a search of thousands of page loads needs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import urlencode, urljoin, urlsplit

from palaestra.browser.sites import Request
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Transition
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
        link = clicked(self.url, action.text)
        if link is None:
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


class Research(Adapter, typical_turns=40):
    """A sum over countries that a file lists, of numbers that the encyclopedia has."""

    instructions = (
        "You answer a question with an encyclopedia (search NAME, click [id]), files (read NAME) "
        "and Python (python CODE). At the end: answer NUMBER."
    )
    COUNTRIES = 3
    FACT = FACTS["population"]

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._box = open_sandbox("auto", interpreter.settings("auto", Limits(seconds=3600.0)))
        self._python = interpreter.Interpreter(self._box)

    def _begin(self, task: Task) -> Observation:
        rng = random.Random(f"research {task.id} {task.seed}")
        numbers = {name: one.number("population") for name, one in countries().items()}
        known = [name for name, number in numbers.items() if number is not None]
        weights = {name: rng.randint(2, 9) for name in rng.sample(known, self.COUNTRIES)}
        self._file = "\n".join(["country,weight", *(f"{n},{w}" for n, w in weights.items())])
        self.right = sum(int(numbers[name] or 0) * weight for name, weight in weights.items())
        self.url = f"{HOST}/"
        return Observation(
            f"Question: for the countries in list.csv, what is the sum of '{self.FACT.label}' "
            f"(section '{self.FACT.section}' of the encyclopedia) times weight?"
        )

    def _act(self, action: Action) -> Transition:
        verb, _, rest = action.text.strip().partition(" ")
        match verb:
            case "answer":
                right = rest == str(self.right)
                return Transition(
                    Observation("Over."), float(right), terminated=True, success=right
                )
            case "read":
                found = self._file if rest == "list.csv" else f"There is no file {rest}."
                return Transition(Observation(found))
            case "python":  # each time with nothing defined
                return Transition(Observation(str(self._python.run(f"exec({rest!r}, {{}})"))))
            case "search":
                self.url = f"{HOST}/search?{urlencode({'query': rest})}"
            case _:
                link = clicked(self.url, action.text)
                if link is None:
                    return refused("That is neither a link of the page nor another action.")
                self.url = link
        return Transition(Observation(page_at(self.url)[0]))

    def close(self) -> None:
        self._python.close()
        self._box.close()


def clicked(url: str, action: str) -> str | None:
    """Return the address to which a click leads from a page of the encyclopedia, if to another."""
    found = re.fullmatch(r"\s*click \[(\d+)\]\s*", action)
    link = page_at(url)[1].get(found[1]) if found else None
    return None if link is None or PAGES.respond("GET", link) is None else link


@cache
def page_at(url: str) -> tuple[str, Mapping[str, str]]:
    """Return a page as text, and the addresses of its links by their ids."""
    page = PAGES.respond("GET", url)
    assert page is not None
    nodes = PageReader(page.html).nodes
    links = {node.id: urljoin(url, node.link) for node in nodes if node.link}
    return f"{url}\n{flat([node.element() for node in nodes])}", links
