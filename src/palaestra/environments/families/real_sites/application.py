"""The contract of a site application: its first state by seed, and who answers its requests.

An application is stateless; each world has an `OpenSite` of it: a copy of the database, a clock,
and the person who is signed in.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Literal

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.real_sites.site_database import SiteDatabase, SiteTemplate

Size = Literal["small", "large"]
DOMAIN = ".example"  # reserved: no such host exists anywhere (RFC 2606)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # when each world begins, as the clocks of its pages do


@dataclass(frozen=True, slots=True)
class Variant:
    """How worlds of an application differ beside their seed."""

    size: Size = "small"
    language: str = "en"  # of the pages, not of what people wrote


PLAIN = Variant()


class Application(ABC):
    """An application as a site."""

    name: ClassVar[str]  # of its host, and of its tables: "shop.catalogue_product"
    unjudged: ClassVar[Mapping[str, Collection[str]]] = {}
    """What it writes by itself, by table without the name: columns, or none for all of a table."""

    def __init__(self, variant: Variant = PLAIN) -> None:
        self.variant = variant

    @abstractmethod
    def open(self, seed: int) -> OpenSite:
        """Return a copy in which nothing has happened; equal seeds give equal rows."""

    @abstractmethod
    def respond(self, site: OpenSite, request: Request) -> Response:
        """Answer a request to a world's copy; called from one thread at a time."""

    def check(self) -> None:
        """Raise ImportError if what it is made of is not installed."""

    def label(self, text: str) -> str:
        """Return an English text of its pages in their language, as far as that is known."""
        return text

    def cookies(self, site: OpenSite) -> Mapping[str, str]:
        """Return the cookies of whoever is signed in at the start; none unless overridden."""
        return {}

    @property
    def host(self) -> str:
        return f"{self.name}{DOMAIN}"

    @property
    def address(self) -> str:
        """The address of the first page."""
        return f"http://{self.host}/"


class DatabaseApplication(Application):
    """An application whose rows lie in one database."""

    @abstractmethod
    def template(self, seed: int) -> SiteTemplate:
        """Return what a world begins with; equal seeds give equal rows. It should be cached."""

    def open(self, seed: int) -> OpenSite:
        return OpenSite(self, seed, SiteDatabase(self.template(seed)))


class OpenSite:
    """One world's copy of an application; it is called with requests."""

    def __init__(self, application: Application, seed: int, database: SiteDatabase) -> None:
        self.application, self.seed, self.database = application, seed, database
        self.now = BEGIN  # the environment moves it on, gesture by gesture

    def __call__(self, request: Request) -> Response:
        return self.application.respond(self, request)

    @property
    def columns(self) -> Mapping[str, Mapping[str, Column]]:
        """The columns of each table, named `application.table`, without the id."""
        return self.database.columns

    def rows(self, table: str, where: str = "", values: Sequence[object] = ()) -> list[Row]:
        """Return rows in the order of their ids; see `SiteDatabase.rows`."""
        return self.database.rows(table, where, values)

    def changes(self) -> list[Change]:
        """Return the rows that differ from the beginning, less what nobody judges."""
        return [kept for one in self.database.differences() if (kept := self._judged(one))]

    def key(self) -> str:
        """Return a key of its state; copies with equal keys go on equally."""
        document = f"{self.seed} {self.now} {self.database.key()}".encode()
        return hashlib.blake2b(document, digest_size=12).hexdigest()

    def save(self) -> bytes:
        """Return what differs from the beginning, but for the clock."""
        return self.database.save()

    def load(self, saved: bytes) -> None:
        """Return to what was saved of a copy with the same seed."""
        self.database.load(saved)

    def close(self) -> None:
        self.database.close()

    def _judged(self, change: Change) -> Change | None:
        name = change.table.partition(".")[2]
        if name not in self.application.unjudged:
            return change
        columns = self.application.unjudged[name]
        if not columns:
            return None
        before, after = (
            row and {field: value for field, value in row.items() if field not in columns}
            for row in (change.before, change.after)
        )
        return Change(change.table, change.id, before, after) if before != after else None
