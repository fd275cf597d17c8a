"""What Trac takes from a world: its database, its repository, the files that were attached.

Trac's own extension points give it all of these but the files. Imported by `trac_server.py`, after
Trac's clock was replaced.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trac.attachment import Attachment
from trac.cache import CacheManager
from trac.config import Configuration
from trac.core import Component, ComponentManager, implements
from trac.db.api import IDatabaseConnector
from trac.db.sqlite_backend import SQLiteConnection, SQLiteConnector
from trac.db.util import ConnectionWrapper
from trac.db_default import schema as trac_tables
from trac.env import Environment
from trac.perm import DefaultPermissionPolicy, PermissionSystem
from trac.resource import ResourceNotFound
from trac.versioncontrol.api import IRepositoryProvider, RepositoryManager
from tracopt.versioncontrol.git.PyGIT import Storage, StorageFactory


@dataclass(frozen=True, slots=True)
class Served:
    """What the request that is answered now is about."""

    connection: sqlite3.Connection
    repository: Path  # a bare Git repository


served: ContextVar[Served] = ContextVar("served_by_trac")


class ProjectEnvironment(Environment):
    """A Trac environment whose configuration is in memory."""

    required = False
    abstract = True  # else Trac makes one for itself

    def __init__(self, path: Path, options: Mapping[tuple[str, str], str]) -> None:
        """Make one.

        Args:
            path: of a folder; Trac looks there for templates and files of the project.
            options: the configuration, by section and name.
        """
        ComponentManager.__init__(self)
        self.path = str(path)
        self.config = Configuration(None)
        for (section, name), value in options.items():
            self.config.set(section, name, value)
        self.log = logging.getLogger("trac")
        self.log.addHandler(logging.NullHandler())  # a page says what went wrong

    def forget(self) -> None:
        """Forget all that Trac remembers between requests: the next may be of another world."""
        cache = CacheManager(self)
        cache._cache.clear()
        cache.reset_metadata()
        DefaultPermissionPolicy(self).permission_cache.clear()
        PermissionSystem(self).permission_cache.clear()
        RepositoryManager(self)._all_repositories = None


class WorldConnection(SQLiteConnection):
    """The connection of a world, with which Trac begins and ends transactions."""

    poolable = False

    def __init__(self, connection: sqlite3.Connection, log: Any) -> None:
        connection.isolation_level = "DEFERRED"
        self._active_cursors: Any = weakref.WeakKeyDictionary()
        self._eager = True
        ConnectionWrapper.__init__(self, connection, log)


class WorldConnector(SQLiteConnector):
    """Connects Trac with the database of the world that is served."""

    implements(IDatabaseConnector)

    def get_supported_schemes(self) -> Iterator[tuple[str, int]]:
        yield "world", 1

    def get_connection(self, path: str, log: Any = None, **options: Any) -> WorldConnection:
        return WorldConnection(served.get().connection, log)

    def init_db(self, path: str, schema: Any = None, log: Any = None, **options: Any) -> None:
        connection = served.get().connection
        for table in schema or trac_tables:
            for statement in self.to_sql(table):
                connection.execute(statement)


class WorldRepository(Component):
    """Shows Trac the repository of the world that is served."""

    implements(IRepositoryProvider)

    def get_repositories(self) -> Iterator[tuple[str, dict[str, str]]]:
        folder = str(served.get().repository)
        _kept(folder)
        yield "", {"dir": folder, "type": "git"}


@lru_cache(4)
def _kept(folder: str) -> Storage:
    """Keep what Trac knows of a repository, and its two Git processes, for some at a time.

    Trac would keep it for one request, or else for ever.
    """
    return StorageFactory(folder, logging.getLogger("trac"), git_fs_encoding="utf-8").getInstance()


atexit.register(_kept.cache_clear)  # a process of Git is ended by what Python can still import


# ── attached files ───────────────────────────────────────────────────────────

UPLOADS = "CREATE TABLE uploaded_file (name TEXT PRIMARY KEY, content BLOB NOT NULL)"


class _Upload(io.BytesIO):
    """A file that is written: it lies in the world's database as soon as it is closed."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __exit__(self, *problem: object) -> None:
        if problem[0] is None:
            statement = "INSERT INTO uploaded_file VALUES (?, ?)"
            served.get().connection.execute(statement, (self._name, self.getvalue()))
            served.get().connection.commit()
        super().__exit__(*problem)  # type: ignore[arg-type]


def keep_attachments_in_database() -> None:
    """Let Trac keep the files that are attached in the world's database instead of a folder."""
    delete = Attachment.delete

    def create(self: Any, folder: str, filename: str) -> tuple[str, _Upload]:
        stem, extension = os.path.splitext(filename)
        taken, number = {one.filename for one in _siblings(self)}, 1
        while filename in taken:
            number += 1
            filename = f"{stem}.{number}{extension}"
        return filename, _Upload(_name(self, filename))

    def read(self: Any) -> io.BytesIO:
        found = _run("SELECT content FROM uploaded_file WHERE name = ?", _name(self, self.filename))
        if not found:
            raise ResourceNotFound(f"Attachment '{self.filename}' not found")
        return io.BytesIO(found[0][0])

    def remove(self: Any) -> None:
        delete(self)
        _run("DELETE FROM uploaded_file WHERE name = ?", _name(self, self.filename))

    Attachment._create_unique_file = create
    Attachment.open = read
    Attachment.delete = remove


def _siblings(attachment: Any) -> Iterator[Any]:
    found: Iterator[Any] = Attachment.select(
        attachment.env, attachment.parent_realm, attachment.parent_id
    )
    return found


def _name(attachment: Any, filename: str) -> str:
    return f"{attachment.parent_realm}/{attachment.parent_id}/{filename}"


def _run(statement: str, name: str) -> list[Any]:
    return served.get().connection.execute(statement, (name,)).fetchall()
