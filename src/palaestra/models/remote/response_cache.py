"""Response cache: a durable store of remote models' replies, keyed by the exact request.

A request is the protocol, the model, the URL and everything that is sent, its seed included. Only
an identical request is answered from the cache. Several processes may share a file. A reply is
committed when `put` returns, so killing the process loses none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from palaestra.core.errors import InfrastructureFault, InputError, StorageFull

APPLICATION = 0x50414C41  # in the file's header: marks the file as ours
BUSY_SECONDS = 30.0  # seconds to wait while another process writes
_MAGIC = b"SQLite format 3\x00"
_UNWRITTEN = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})  # a quota gives the other

T = TypeVar("T")


def request_key(protocol: str, model: str, url: str, request: Mapping[str, Any], seed: int) -> str:
    """Return the key of a request; the order of fields and spacing do not change it.

    Args:
        protocol: the provider protocol.
        model: the model's name on the server.
        url: base URL of the API.
        request: everything that is sent.
        seed: of the sample, even if the protocol has no field for it.

    Returns:
        64 hexadecimal digits.
    """
    parts = [protocol, model, url.rstrip("/"), request, seed]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ResponseCache:
    """The replies stored in one SQLite file."""

    def __init__(self, path: Path) -> None:
        """Check the path; the file is opened at the first request.

        Args:
            path: the file; created when first needed.

        Raises:
            InputError: no cache can be stored there.
        """
        self.path = path
        self._thread: ThreadPoolExecutor | None = None  # so that the disk blocks no session
        self._connection: sqlite3.Connection | None = None  # belongs to that thread
        if not path.parent.is_dir():
            raise InputError(f"The folder of the cache '{path}' does not exist; create it first.")
        if path.is_dir():
            raise InputError(f"'{path}' is a folder; name a file for the response cache.")
        if path.exists():
            self._check()

    async def get(self, key: str) -> Any | None:
        """Return the stored reply of that key, or None.

        Raises:
            InputError: the file is no response cache, or cannot be opened.
            InfrastructureFault: the file cannot be read.
        """
        return await self._do(lambda: self._get(key))

    async def put(self, key: str, answer: Any) -> Any:
        """Store a reply unless the key has one; it is committed when this returns.

        Returns:
            the stored reply: of two concurrent callers, both get the first one's.

        Raises:
            StorageFull: the disk is full; what was stored before is intact.
            InputError, InfrastructureFault: like `get`.
        """
        return await self._do(lambda: self._put(key, answer))

    async def close(self) -> None:
        """Close the file; the next request opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.wrap_future(thread.submit(self._close))
            thread.shutdown()

    # ── in the thread ────────────────────────────────────────────────────────

    def _get(self, key: str) -> Any | None:
        found = self._open().execute("SELECT answer FROM answer WHERE key = ?", (key,)).fetchone()
        return None if found is None else json.loads(found[0])

    def _put(self, key: str, answer: Any) -> Any:
        self._open().execute(
            "INSERT OR IGNORE INTO answer VALUES (?, ?)", (key, json.dumps(answer))
        )
        return self._get(key)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
                try:
                    _retry_while_locked(lambda: self._prepare(connection))
                except BaseException:
                    connection.close()
                    raise
            except sqlite3.Error as error:
                raise InputError(
                    f"The cache '{self.path}' cannot be opened ({error}); check its permissions, "
                    "or name another file."
                ) from error
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the table in a new file; raise for a database of another application."""
        connection.execute("BEGIN")  # read both values at the same moment
        ((application,),) = connection.execute("PRAGMA application_id")
        empty = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
        connection.execute("COMMIT")
        if application != APPLICATION:
            if not empty:
                raise self._foreign()
            connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer at once
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = NORMAL")  # in WAL mode, a kill loses nothing

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ── details ──────────────────────────────────────────────────────────────

    async def _do(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread, to its end even if the caller is cancelled."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        return await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._explain, work)))

    def _explain(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) in _UNWRITTEN:
                raise StorageFull(
                    f"The cache '{self.path}' could not be written ({error}): the disk, or a "
                    "quota, is full. Free some space; what was stored before is intact."
                ) from error
            raise InfrastructureFault(
                "cache", f"the cache '{self.path}' cannot be used ({error}); name another file"
            ) from error

    def _check(self) -> None:
        if not os.access(self.path, os.R_OK | os.W_OK):
            raise InputError(
                f"The cache '{self.path}' is not readable and writable; change its permissions."
            )
        with self.path.open("rb") as file:
            start = file.read(len(_MAGIC))
        if start not in (b"", _MAGIC):
            raise self._foreign()

    def _foreign(self) -> InputError:
        return InputError(
            f"'{self.path}' is not a response cache and was left unchanged; name another file."
        )


def _retry_while_locked(work: Callable[[], None]) -> None:
    """Retry while another process opens the file: SQLite does not wait for some of its locks."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.02)
