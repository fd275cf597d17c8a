"""A full-text index of the episodes of a run, in a file beside the run.

The file, `search-1.sqlite`, never blocks the process that writes the run, and can be deleted and
rebuilt. It indexes the words of tasks, observations, actions and all messages. `extend` adds the
newly finished episodes, within a time limit; `find` searches the indexed ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.paths import cache_folder
from palaestra.store.damage import decoding
from palaestra.store.database import Database
from palaestra.store.disk import is_full, storage_full, write_error

FORMAT = 1
_BATCH = 200  # episodes added in one transaction
_SCHEMA = """
CREATE TABLE IF NOT EXISTS document (id INTEGER PRIMARY KEY, episode INTEGER UNIQUE, last INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(body, content='', detail='full');
"""
# Numbers of episodes, and of the last event of each, which changes if the episode runs again.
_FINISHED = """SELECT episode.id, record.last FROM episode LEFT JOIN record
    ON record.phase = episode.phase AND record."group" = episode."group"
    AND record.member = episode.member"""


@dataclass(frozen=True, slots=True)
class Extent:
    """The share of a run's episodes in its index."""

    indexed: int
    episodes: int

    @property
    def whole(self) -> bool:
        return self.indexed >= self.episodes


class TextIndex:
    """The index of one run. Several processes may use it at once."""

    def __init__(self, run: Path) -> None:
        """Use the index of the run in folder `run`; `extend` creates its file."""
        folder = Path(run).absolute()
        self._file = folder / f"search-{FORMAT}.sqlite"
        if not os.access(folder, os.W_OK):
            name = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:24]
            self._file = cache_folder() / "search" / f"{name}-{FORMAT}.sqlite"

    def extend(
        self,
        database: Database,
        *,
        seconds: float = math.inf,
        progress: Callable[[Extent], None] = lambda _: None,
    ) -> Extent:
        """Add the finished episodes of a run that are not in it yet.

        Args:
            database: of the run, open for reading.
            seconds: an approximate time limit; at least one episode is added.
            progress: called after each batch with the share that is indexed.

        Raises:
            InputError: the file is not writable.
            StorageFull: there is no space for it.
        """
        end = time.monotonic() + seconds
        finished = dict(database._connection.execute(_FINISHED).fetchall())
        with self._connected(writing=True) as connection:
            known = dict(connection.execute("SELECT episode, last FROM document").fetchall())
            stale = [(id,) for id, last in known.items() if id not in finished]
            stale += [(id,) for id, last in known.items() if finished.get(id, last) != last]
            with connection:
                connection.executemany("DELETE FROM document WHERE episode = ?", stale)
            gone = {id for (id,) in stale}
            lacking = [id for id in finished if id not in known or id in gone]
            done = len(finished) - len(lacking)
            for start in range(0, len(lacking), _BATCH):
                progress(Extent(done, len(finished)))
                if start and time.monotonic() > end:
                    break
                batch = lacking[start : start + _BATCH]
                with decoding(database.path):
                    texts = _texts(database._connection, batch, end)
                with connection:
                    for id, body in texts.items():
                        number = connection.execute(
                            "INSERT OR IGNORE INTO document (episode, last) VALUES (?, ?)",
                            (id, finished[id]),
                        )
                        if number.rowcount:  # else another process has added it
                            connection.execute(
                                "INSERT INTO words (rowid, body) VALUES (?, ?)",
                                (number.lastrowid, body),
                            )
                done += len(texts)
        return Extent(done, len(finished))

    def find(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of the indexed episodes with all `words` (or phrases), in order."""
        if not self._file.exists():
            return []
        query = " AND ".join(_quoted(word) for word in words if _has_letters(word))
        if not query:
            return []
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT document.episode FROM words JOIN document ON document.id = words.rowid"
                " WHERE words MATCH ? ORDER BY document.episode",
                (query,),
            )
            return [id for (id,) in rows]

    @contextmanager
    def _connected(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if writing:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            uri = f"{self._file.as_uri()}?mode={'rwc' if writing else 'ro'}"
            with closing(sqlite3.connect(uri, uri=True, timeout=10.0)) as connection:
                if writing:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = OFF")  # it can be rebuilt
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                yield connection
        except (sqlite3.Error, OSError) as error:
            cause = write_error(self._file) if writing else None
            if cause is not None and is_full(cause):
                raise storage_full("The search index", self._file.parent, cause) from error
            raise InputError(
                f"The search index {self._file} cannot be used: {error}. Delete it; it will be "
                "rebuilt."
            ) from error


def passages(episode: Episode) -> Iterator[tuple[int | None, str]]:
    """Yield the searchable texts of an episode, each with the index of its step or None."""
    yield None, episode.task.instruction
    if episode.observation is not None:
        yield None, episode.observation.text
    acted = {step.call: step.index for step in episode.steps if step.call is not None}
    for call in episode.calls:
        for message in (*call.messages, call.reply):
            texts = (message.reasoning, message.text, *map(str, message.tool_calls))
            yield acted.get(call.index), "\n".join(filter(None, texts))
    for step in episode.steps:
        words = step.action.text if step.action.call is None else str(step.action.call)
        yield step.index, words
        yield step.index, step.transition.observation.text


def _texts(connection: sqlite3.Connection, ids: Sequence[int], end: float) -> dict[int, str]:
    """Return the searchable text of as many episodes as time allows; at least one."""
    found: dict[int, str] = {}
    for id in ids:
        if found and time.monotonic() > end:
            break
        header = connection.execute(
            "SELECT task, observation FROM episode WHERE id = ?", (id,)
        ).fetchone()
        parts: dict[str, None] = {}  # an ordered set: repeated texts are indexed once
        if header is not None:
            task, observation = header
            parts[json.loads(task)["instruction"]] = None
            parts[(json.loads(observation or "null") or {"text": ""})["text"]] = None
        for kind, body in connection.execute(_EVENTS, (id,)):
            parts |= dict.fromkeys(_event_texts(kind, json.loads(body)))
        found[id] = "\n".join(part for part in parts if part)
    return found


def _event_texts(kind: str, event: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a stored event."""
    if kind == "step":
        yield event["action"]["text"]
        yield json.dumps(event["action"]["call"], ensure_ascii=False)
        yield event["transition"]["observation"]["text"]
    else:
        for message in (*event["messages"], event["reply"]):
            yield from map(_words, message["parts"])


def _words(part: dict[str, Any]) -> str:
    """Return the text of a stored message part; a tool call's is the same as in a step."""
    if part["type"] == "tool_call":
        return json.dumps({n: part[n] for n in ("name", "arguments")}, ensure_ascii=False)
    return str(part.get("text", ""))


_EVENTS = """WITH RECURSIVE chain (id) AS (
    SELECT record.last FROM episode JOIN record ON record.phase = episode.phase
        AND record."group" = episode."group" AND record.member = episode.member
        WHERE episode.id = ?
    UNION ALL
    SELECT event.before FROM chain CROSS JOIN event ON event.id = chain.id
    WHERE event.before < event.id)
SELECT kind, body FROM chain CROSS JOIN event ON event.id = chain.id"""


def _quoted(word: str) -> str:
    """Quote a word, a phrase or a prefix ("door*") for FTS5, without its other syntax."""
    open_end = word.endswith("*")
    plain = word.rstrip("*").replace("\x00", " ").encode("utf-8", "replace").decode()
    return '"' + plain.replace('"', '""') + '"' + ("*" if open_end else "")


def _has_letters(word: str) -> bool:
    return re.search(r"[^\W_]", word) is not None
