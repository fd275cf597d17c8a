"""A world of sites: a copy of each of its applications, with one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from palaestra.browser.sites import Request, Response, Site
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
from palaestra.environments.families.real_sites.compressing import compressed, parts_of

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


@dataclass(frozen=True, slots=True)
class ShownPage:
    """How a page was asked for, so that a site can answer it once more with the same words."""

    site: str  # its name
    address: str
    headers: Mapping[str, str]
    now: datetime
    saved: bytes  # the state of the site before


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
        self.shown: ShownPage | None = None  # as it was asked for last; None: by no GET

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

    @property
    def now(self) -> datetime:
        """The clock of all sites."""
        return next(iter(self.sites.values())).now

    def at(self, now: datetime) -> None:
        """Set the clock of all sites."""
        for site in self.sites.values():
            site.now = now

    def by_host(self, again: ShownPage | None = None) -> dict[str, Site]:
        """Return who answers, by host.

        Args:
            again: a page that is answered again as it was: whoever asks for a page gets it. The
                site that answers must be in the state before, see `before`.
        """
        found = self.sites.items()
        return {site.application.host: self._answering(name, again) for name, site in found}

    def _answering(self, name: str, again: ShownPage | None) -> Site:
        site = self.sites[name]

        def answer(request: Request) -> Response:
            if request.page and again is not None:
                request = Request("GET", again.address, again.headers, page=True)
            if request.page:
                asked = ShownPage(name, request.address, request.headers, site.now, site.save())
                self.shown = asked if request.method == "GET" else None
            return site(request)

        return answer

    def before(self, page: ShownPage) -> None:
        """Return the site of a page to the state in which it was asked for the page."""
        self.sites[page.site].load(page.saved)
        self.at(page.now)

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
        return compressed([site.save() for site in self.sites.values()])

    def load(self, saved: bytes) -> None:
        """Return to what was saved of a world with the same sites and seed."""
        for site, held in zip(self.sites.values(), parts_of(saved), strict=True):
            site.load(held)

    def close(self) -> None:
        for site in self.sites.values():
            site.close()
