"""Notes: what a person wrote about episodes of a run, and the labels that person gave them.

They lie in `notes.sqlite` beside the run's database, which belongs to the process that trains:
a note can be written at any time. A label is a name with a value, as in `Episode.labels`;
"good" alone means "good=yes". What was said last about an episode holds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.store.disk import is_full, refusal, storage_full

LONGEST = 20_000  # characters of one note
_SCHEMA = """CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, "group" INTEGER NOT NULL, member INTEGER NOT NULL,
    text TEXT NOT NULL, labels TEXT NOT NULL, created TEXT NOT NULL)"""
_SELECT = 'SELECT id, phase, "group", member, text, labels, created FROM note'


@dataclass(frozen=True, slots=True)
class Note:
    """What was said about one episode at one time."""

    id: int
    key: Key
    text: str
    labels: Mapping[str, str]
    created: datetime  # UTC


class Notes:
    """The notes of one run; any number of processes may read and write them."""

    def __init__(self, file: Path) -> None:
        """Use `Notes.open`."""
        self._file = file

    @classmethod
    def open(cls, run: Path) -> Notes:
        """The notes of the run in folder `run`; nothing is created before the first note."""
        return cls(Path(run) / "notes.sqlite")

    def add(self, key: Key, text: str, labels: Mapping[str, str] | None = None) -> Note:
        """Write one note, durably.

        Raises:
            InputError: it says nothing, it is too long, or the run's folder cannot be written to.
            StorageFull: there is no space for it.
        """
        text, given = _clean(text).strip(), labels or {}
        words = {_clean(name).strip(): _clean(value).strip() for name, value in given.items()}
        words.pop("", None)
        if not text and not words:
            raise InputError("The note says nothing; write a text or a label.")
        if len(text) + len(json.dumps(words)) > LONGEST:
            raise InputError(f"The note is too long: at most {LONGEST} characters are kept.")
        row = (*_parts(key), text, json.dumps(words), datetime.now(UTC).isoformat())
        with self._connected(writing=True) as connection:
            number = connection.execute(
                'INSERT INTO note (phase, "group", member, text, labels, created)'
                " VALUES (?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
        return _note((number, *row))

    def remove(self, number: int) -> None:
        """Delete the note of that id, if it is there."""
        if self._file.exists():
            with self._connected(writing=True) as connection:
                connection.execute("DELETE FROM note WHERE id = ?", (number,))

    def of(self, key: Key) -> list[Note]:
        """The notes on one episode, oldest first."""
        return self._read(' WHERE phase = ? AND "group" = ? AND member = ? ORDER BY id', key)

    def all(self) -> list[Note]:
        """The notes on all episodes of the run, oldest first."""
        return self._read(" ORDER BY id")

    def _read(self, where: str, key: Key | None = None) -> list[Note]:
        if not self._file.exists():
            return []
        with self._connected() as connection:
            rows = connection.execute(_SELECT + where, _parts(key) if key else ())
            return [_note(row) for row in rows]

    @contextmanager
    def _connected(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        uri = f"{self._file.absolute().as_uri()}?mode={'rwc' if writing else 'ro'}"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=10.0)) as connection, connection:
                if writing:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute(_SCHEMA)
                yield connection
        except sqlite3.Error as error:
            cause = refusal(self._file) if writing else None
            if cause is not None and is_full(cause):
                raise storage_full("The note", self._file.parent, cause) from error
            raise InputError(
                f"The notes in {self._file} cannot be {'written' if writing else 'read'}: {error}. "
                "Check the file and the permissions of its folder."
            ) from error


def labelled(run: Path) -> dict[Key, dict[str, str]]:
    """The labels that persons gave to episodes of the run in folder `run`; the last one holds."""
    found: dict[Key, dict[str, str]] = {}
    for note in Notes.open(run).all():
        if note.labels:
            found.setdefault(note.key, {}).update(note.labels)
    return found


def says(labels: Mapping[str, str], wanted: str) -> bool | None:
    """Whether the labels of one episode agree to `wanted`; None where they say nothing of it.

    "good" is a yes unless its value is "no"; "part=2" is one where the value is 2.
    """
    name, equals, value = wanted.partition("=")
    if name not in labels:
        return None
    return labels[name] == value if equals else labels[name] != "no"


def parse_labels(text: str) -> dict[str, str]:
    """The labels in a line that a person wrote, e.g. "good, lost_at=4"; a bare word means yes."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name.strip():
            found[name.strip()] = value.strip() if equals else "yes"
    return found


def _note(row: tuple[object, ...]) -> Note:
    number, phase, group, member, text, labels, created = row
    return Note(
        int(str(number)),
        Key(str(phase), int(str(group)), int(str(member))),
        str(text),
        json.loads(str(labels)),
        datetime.fromisoformat(str(created)),
    )


def _parts(key: Key) -> tuple[str, int, int]:
    return key.phase, key.group, key.member


def _clean(text: str) -> str:
    """Without the halves of characters that no file can hold."""
    return text.encode("utf-8", "replace").decode()
