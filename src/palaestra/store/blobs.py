"""Blobs: data that many records share, stored once under the hash of its bytes.

Blobs are the bytes of images, and the tools of calls as JSON.
"""

from __future__ import annotations

import hashlib
import sqlite3

from palaestra.core.environment import Observation
from palaestra.core.episode import Event, Step
from palaestra.core.message import Image
from palaestra.core.tool import Tool
from palaestra.store.codec import from_json, to_json

SCHEMA = """
CREATE TABLE IF NOT EXISTS blob (sha256 TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
_ADD = "INSERT OR IGNORE INTO blob VALUES (?, ?)"
_FIND = "SELECT data FROM blob WHERE sha256 = ?"
MOST = 256  # blobs kept in memory during reads

Tools = tuple[Tool, ...]


class Blobs:
    """The blobs of a database; new ones stay in memory until `write` in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use the database of `connection`, which has the table of SCHEMA."""
        self._connection = connection
        self._rows: dict[str, bytes] = {}  # to be written
        self._known: set[str] = set()  # added since the database was opened
        self._names: dict[Tools, str] = {}  # of added tools
        self._found: dict[str, bytes] = {}  # cache of read blobs
        self._tools: dict[str, Tools] = {}  # cache of read tools

    def keep(self, event: Event) -> str | None:
        """Add the blobs of an event; return the name of its tools, if any."""
        if isinstance(event, Step):
            self.keep_seen(event.transition.observation)
            return None
        for message in (*event.messages, event.reply):
            for part in message.parts:
                if isinstance(part, Image):
                    self._keep(part.sha256, part.data)
        return self._keep_tools(event.tools) if event.tools else None

    def keep_seen(self, observation: Observation | None) -> None:
        """Add the images of an observation."""
        if observation is not None:
            for image in observation.images:
                self._keep(image.sha256, image.data)

    def write(self) -> None:
        """Write all added blobs, within the caller's transaction; see `discard`."""
        rows, self._rows = self._rows, {}
        if rows:
            self._connection.executemany(_ADD, rows.items())

    def discard(self) -> None:
        """Drop all blobs in memory; call it when the transaction of `write` has failed."""
        for held in (self._rows, self._known, self._names):
            held.clear()

    def find(self, name: str) -> bytes:
        """Return the bytes of that hash; raises ValueError if they are missing."""
        data = self._rows.get(name) or self._found.get(name)
        if data is None:
            row = self._connection.execute(_FIND, (name,)).fetchone()
            if row is None:
                raise ValueError(f"the blob {name} is lost")
            if len(self._found) >= MOST:
                self._found.clear()
            data = self._found[name] = row[0]
        return data

    def tools(self, name: str | None) -> Tools:
        """Return the tools of that name; raises ValueError if they are missing."""
        if name is None:
            return ()
        if name not in self._tools:
            self._tools[name] = tuple(from_json(Tool, [self.find(name).decode()[1:-1]]))
        return self._tools[name]

    def _keep_tools(self, tools: Tools) -> str:
        if tools not in self._names:
            data = f"[{','.join(map(to_json, tools))}]".encode()
            name = hashlib.sha256(data).hexdigest()
            self._keep(name, data)
            self._names[tools] = name
        return self._names[tools]

    def _keep(self, name: str, data: bytes) -> None:
        if name not in self._known:
            self._known.add(name)
            self._rows[name] = data
