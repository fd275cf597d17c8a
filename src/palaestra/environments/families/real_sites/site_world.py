"""A world of sites: a copy of each of its applications, with one clock."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

from palaestra.browser.sites import Site
from palaestra.core.errors import InputError, MissingPackage
from palaestra.core.paths import import_named
from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.real_sites.application import (
    PLAIN,
    Application,
    OpenSite,
    Variant,
)

HERE = "palaestra.environments.families.real_sites"
APPLICATIONS = {
    "shop": f"{HERE}.shop:Shop",
    "forum": f"{HERE}.forum:Forum",
    "cms": f"{HERE}.cms:Cms",
    "code": f"{HERE}.code_host:CodeHost",
    "home": f"{HERE}.atlas.home:Home",
    "encyclopedia": f"{HERE}.atlas.encyclopedia:Encyclopedia",
    "map": f"{HERE}.atlas.town_map:TownMap",
    "mail": f"{HERE}.atlas.compiled_apps:Mail",
    "contacts": f"{HERE}.atlas.compiled_apps:Contacts",
    "gallery": f"{HERE}.atlas.gallery:Gallery",
}
"""The classes of applications, by name; they are imported when a world has them."""

LARGE = ("shop", "code")
"""Those that have large worlds, too: some ten times as many rows, so lists have several pages."""

LANGUAGES = {"code": ("de", "fr", "ja", "pt_BR")}
"""Those that have pages in other languages, in which the references of all their tasks were proven.
"""

INSTALL = "pip install --no-deps -r requirements/{} (a file of palaestra's repository)"


@cache
def application(name: str, variant: Variant = PLAIN) -> Application:
    """Return an application, with worlds of a variant.

    Raises:
        InputError: it has no such worlds.
        MissingPackage: what it is made of is not installed.
    """
    if variant.language not in ("en", *LANGUAGES.get(name, ())):
        raise InputError(f"The site '{name}' has no pages in the language '{variant.language}'.")
    if variant.size == "large" and name not in LARGE:
        raise InputError(f"The site '{name}' has no large worlds; {' and '.join(LARGE)} have.")
    module, _, attribute = APPLICATIONS[name].partition(":")
    try:
        found: Application = getattr(import_named(module), attribute)(variant)
        found.check()
    except ImportError as error:
        own = "trac.txt" if name == "code" else "sites.txt"
        file = "atlas.txt" if ".atlas." in module else own
        raise MissingPackage(
            f"The site '{name}' needs the Python package '{error.name}', which is not installed; "
            f"install it with: {INSTALL.format(file)}."
        ) from error
    return found


class SiteWorld:
    """Copies of applications that one agent uses."""

    def __init__(self, names: Sequence[str], seed: int, variant: Variant = PLAIN) -> None:
        """Open copies in which nothing has happened.

        Args:
            names: of applications.
            seed: of what they hold.
            variant: of all of them.
        """
        self.sites: dict[str, OpenSite] = {
            name: application(name, variant).open(seed) for name in names
        }

    @property
    def columns(self) -> Mapping[str, Mapping[str, Column]]:
        """The columns of all tables, for a verdict."""
        return {name: found for site in self.sites.values() for name, found in site.columns.items()}

    def rows(self, table: str, where: str = "", values: Sequence[object] = ()) -> list[Row]:
        """Return rows of a table, `application.table`; see `SiteDatabase.rows`."""
        return self.sites[table.partition(".")[0]].rows(table, where, values)

    def row(self, table: str, id: int) -> Row:
        """Return the row with that id; raises ValueError if there is none."""
        [found] = self.rows(table, "rowid = ?", (id,))
        return found

    def changes(self) -> list[Change]:
        """Return the rows that differ from the beginning; see `OpenSite.changes`."""
        return [change for site in self.sites.values() for change in site.changes()]

    def at(self, now: datetime) -> None:
        """Set the clock of all sites."""
        for site in self.sites.values():
            site.now = now

    def by_host(self) -> dict[str, Site]:
        """Return who answers, by host."""
        return {site.application.host: site for site in self.sites.values()}

    def cookies(self) -> dict[str, Mapping[str, str]]:
        """Return the cookies with which the person is signed in, by host."""
        return {
            site.application.host: site.application.cookies(site) for site in self.sites.values()
        }

    def key(self) -> str:
        """Return a key of all sites; equal ones go on equally."""
        return " ".join(site.key() for site in self.sites.values())

    def save(self) -> bytes:
        """Return what differs from the beginning, but for the clock."""
        saved = {name: b64encode(site.save()).decode() for name, site in self.sites.items()}
        return json.dumps(saved).encode()

    def load(self, saved: bytes) -> None:
        """Return to what was saved of a world with the same sites and seed."""
        for name, held in json.loads(saved).items():
            self.sites[name].load(b64decode(held))

    def close(self) -> None:
        for site in self.sites.values():
            site.close()
