"""Notes: texts and labels that people give to episodes of a run.

They are in `notes.sqlite` beside the run's database, which belongs to the training process, so a
note can be written at any time. A label is a name with a value, as in `Episode.labels`; "good"
alone means "good=yes". The latest label of an episode counts.
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
from palaestra.store.disk import is_full, storage_full, write_error

LONGEST = 20_000  # characters of one note
_SCHEMA = """CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, "group" INTEGER NOT NULL, member INTEGER NOT NULL,
    text TEXT NOT NULL, labels TEXT NOT NULL, created TEXT NOT NULL)"""
_SELECT = 'SELECT id, phase, "group", member, text, labels, created FROM note'


@dataclass(frozen=True, slots=True)
class Note:
    """One note about one episode."""

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
        """Open the notes of the run in folder `run`; no file is created before the first note."""
        return cls(Path(run) / "notes.sqlite")

    def add(self, key: Key, text: str, labels: Mapping[str, str] | None = None) -> Note:
        """Write one note, durably.

        Raises:
            InputError: it is empty or too long, or the run's folder is not writable.
            StorageFull: there is no space for it.
        """
        text, given = _clean(text).strip(), labels or {}
        pairs = {_clean(name).strip(): _clean(value).strip() for name, value in given.items()}
        pairs.pop("", None)
        if not text and not pairs:
            raise InputError("The note is empty; write a text or a label.")
        if len(text) + len(json.dumps(pairs)) > LONGEST:
            raise InputError(f"The note is too long; write at most {LONGEST} characters.")
        row = (*_parts(key), text, json.dumps(pairs), datetime.now(UTC).isoformat())
        with self._connected(writing=True) as connection:
            number = connection.execute(
                'INSERT INTO note (phase, "group", member, text, labels, created)'
                " VALUES (?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
        return _note((number, *row))

    def remove(self, number: int) -> None:
        """Delete the note of that id, if it exists."""
        if self._file.exists():
            with self._connected(writing=True) as connection:
                connection.execute("DELETE FROM note WHERE id = ?", (number,))

    def of(self, key: Key) -> list[Note]:
        """Return the notes on one episode, oldest first."""
        return self._read(' WHERE phase = ? AND "group" = ? AND member = ? ORDER BY id', key)

    def all(self) -> list[Note]:
        """Return the notes on all episodes of the run, oldest first."""
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
            cause = write_error(self._file) if writing else None
            if cause is not None and is_full(cause):
                raise storage_full("The note", self._file.parent, cause) from error
            raise InputError(
                f"The notes in {self._file} cannot be {'written' if writing else 'read'}: {error}. "
                "Check the file and the permissions of its folder."
            ) from error


def labelled(run: Path) -> dict[Key, dict[str, str]]:
    """Return the labels of episodes of the run in folder `run`; the latest one counts."""
    found: dict[Key, dict[str, str]] = {}
    for note in Notes.open(run).all():
        if note.labels:
            found.setdefault(note.key, {}).update(note.labels)
    return found


def matches_label(labels: Mapping[str, str], wanted: str) -> bool | None:
    """Return whether the labels of one episode match `wanted`; None if they lack its name.

    "good" matches unless its value is "no"; "part=2" matches if the value is 2.
    """
    name, equals, value = wanted.partition("=")
    if name not in labels:
        return None
    return labels[name] == value if equals else labels[name] != "no"


def parse_labels(text: str) -> dict[str, str]:
    """Parse the labels in a line, e.g. "good, lost_at=4"; a bare name means yes."""
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
    """Replace lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()
