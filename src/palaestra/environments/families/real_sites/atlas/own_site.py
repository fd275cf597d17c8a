"""Applications of our own: tables of what the person saved, and pages by path."""

from __future__ import annotations

import random
import sqlite3
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.application import DatabaseApplication, OpenSite
from palaestra.environments.families.real_sites.atlas.page_blocks import Frame
from palaestra.environments.families.real_sites.site_database import SiteTemplate, opened
from palaestra.environments.families.web.pages.look import Look

NUMBER = 999_999_999  # no row has a larger id


class OwnSite(DatabaseApplication):
    """A site whose pages are made here. Its look is drawn by the world's seed."""

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # the texts that rows hold, by table
    menu: ClassVar[tuple[tuple[str, str], ...]] = ()  # labels and paths

    def template(self, seed: int) -> SiteTemplate:
        return _template(self, seed)

    def respond(self, site: OpenSite, request: Request) -> Response:
        return self.answer(site, request, self.frame(site.seed))

    @abstractmethod
    def answer(self, site: OpenSite, request: Request, frame: Frame) -> Response:
        """Answer a request."""

    def fill(self, connection: sqlite3.Connection, seed: int) -> None:
        """Insert what the world of a seed begins with; nothing unless overridden."""

    def frame(self, seed: int) -> Frame:
        """Return what stands around all pages of a world with that seed."""
        return Frame(Look.drawn(random.Random(f"look {seed} {self.name}")), self.menu)

    # ── rows ─────────────────────────────────────────────────────────────────

    def row(self, site: OpenSite, table: str, id: str) -> Row | None:
        """Return the row whose number a page names; None if there is none."""
        if not id.isascii() or not id.isdecimal() or int(id) > NUMBER:
            return None
        found = site.rows(f"{self.name}.{table}", "rowid = ?", (int(id),))
        return found[0] if found else None

    def insert(self, site: OpenSite, table: str, values: Mapping[str, str]) -> int:
        """Insert a row and return its id."""
        return insert_row(site.database.connection, table, values)

    def update(self, site: OpenSite, table: str, id: int, column: str, value: str) -> None:
        """Change a value of a row."""
        statement = f'UPDATE "{table}" SET "{column}" = ? WHERE id = ?'
        site.database.connection.execute(statement, (value, id))

    def delete(self, site: OpenSite, table: str, id: int) -> None:
        """Delete a row."""
        site.database.connection.execute(f'DELETE FROM "{table}" WHERE id = ?', (id,))


def insert_row(connection: sqlite3.Connection, table: str, values: Mapping[str, str]) -> int:
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    statement = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
    return connection.execute(statement, tuple(values.values())).lastrowid or 0


@lru_cache(maxsize=128)
def _template(application: OwnSite, seed: int) -> SiteTemplate:
    connection = opened(b"")
    connection.execute("PRAGMA user_version = 1")  # a database without a page has no bytes
    for table, columns in application.tables.items():
        texts = "".join(f', "{column}" TEXT NOT NULL' for column in columns)
        connection.execute(f'CREATE TABLE "{table}" (id INTEGER PRIMARY KEY AUTOINCREMENT{texts})')
    application.fill(connection, seed)
    found = SiteTemplate.of(application.name, connection)
    connection.close()
    return found
