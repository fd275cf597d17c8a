"""The read-only examination of a run: faults of its files, one by one."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import DamagedRun, InputError, RunLocked
from palaestra.core.graph import Call
from palaestra.store import checkpoint
from palaestra.store.damage import NAME, Connection
from palaestra.store.database import Database
from palaestra.store.disk import is_full, storage_full
from palaestra.store.events import OF_KEY, parts
from palaestra.store.liveness import worker
from palaestra.store.schema import about, check_tables, connect

MOST = 8  # faults of a kind that are listed one by one
_KEYS = """SELECT phase, "group", member FROM record
    UNION SELECT phase, "group", member FROM episode"""
_REPEATED = "SELECT task_id, environment, reward, turns, sampled_tokens FROM episode"


@dataclass(slots=True)
class Examination:
    """The faults of a run; a run without faults is sound."""

    run: Path
    about: str = ""  # the fault of run.json
    database: list[str] = field(default_factory=list)  # faults of run.sqlite
    others: list[str] = field(default_factory=list)  # faults of checkpoints and notes
    episodes: int = 0  # the number of finished ones, as far as they can be listed

    @property
    def sound(self) -> bool:
        return not (self.about or self.database or self.others)


def examine(run: Path) -> Examination:
    """Check everything that can be checked of the run in folder `run`.

    Raises:
        InputError: the folder holds no run.
        RunLocked: a process is working on it, so its files may change.
        RunVersionMismatch: its database is of another format.
        StorageFull: a copy of the database is needed, and there is no space for one.
    """
    run = Path(run).absolute()
    file = run / NAME
    if not file.is_file() and not (run / "run.json").is_file():
        raise InputError(f"There is no run in {run}, nor the remains of one; check the path.")
    busy = worker(run)
    if busy is not None:
        raise RunLocked(
            f"The run {run} is being worked on by process {busy}; wait until it ends, "
            "or stop it, and try again."
        )
    found = Examination(run)
    if file.is_file():
        _look_at_database(found, file)
    else:
        found.database.append(f"{NAME} is missing")
    found.about = _fault_of_about(run)
    folder = run / "checkpoints"
    for name in checkpoint.names(folder):
        try:
            checkpoint.check(folder, name)
        except checkpoint.CorruptCheckpoint as error:
            found.others.append(str(error))
    notes = run / "notes.sqlite"
    if notes.is_file():
        with aside(notes) as connection:
            found.others += [f"notes.sqlite: {fault}" for fault in _faults_of_pages(connection)]
    return found


@contextmanager
def aside(file: Path) -> Iterator[Connection]:
    """Open a database without changing its folder: read-only, or a copy if it has a log."""
    log = file.with_name(f"{file.name}-wal")
    if not (log.is_file() and log.stat().st_size):
        with closing(connect(file, "mode=ro&immutable=1")) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            for one in (file, log):
                shutil.copyfile(one, Path(folder) / one.name)
        except OSError as error:
            if is_full(error):
                raise storage_full("A copy of the run", Path(folder), error) from error
            raise
        with closing(connect(Path(folder) / file.name, "mode=rw")) as connection:
            connection.file = file
            yield connection


def faults_of_episodes(database: Database) -> Iterator[tuple[Key, str]]:
    """Yield the episodes, finished or not, with damaged records, each with its fault."""
    for row in database._connection.execute(_KEYS).fetchall():
        fault = _fault_of_episode(database, row)
        if fault:
            yield Key(*row), fault


def created(run: Path) -> datetime:
    """Return when a run began at the latest: the earliest time of its files."""
    times = [path.stat().st_mtime for path in run.iterdir()]
    return datetime.fromtimestamp(min(times), UTC)


# ── details ──────────────────────────────────────────────────────────────────


def _look_at_database(found: Examination, file: Path) -> None:
    try:
        with aside(file) as connection:
            check_tables(file, connection)
            found.database += _faults_of_pages(connection)
            database = Database(file, connection)
            faults = [f"{key}: {fault}" for key, fault in faults_of_episodes(database)]
            found.database += faults[:MOST]
            if len(faults) > MOST:
                found.database.append(f"and {len(faults) - MOST} more episodes")
            found.database += [fault for fault in _faults_of_the_rest(database) if fault]
            found.episodes = connection.execute("SELECT count(*) FROM episode").fetchone()[0]
    except (DamagedRun, sqlite3.DatabaseError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, sqlite3.Error) else error
        fault = str(cause).partition(". `palaestra doctor")[0]
        if fault not in found.database:
            found.database.append(fault)


def _faults_of_pages(connection: Connection) -> list[str]:
    try:
        rows = connection.execute(f"PRAGMA integrity_check({MOST})").fetchall()
    except (DamagedRun, sqlite3.DatabaseError) as error:
        return [str(error.__cause__ or error)]
    return [" ".join(str(fault).split()) for (fault,) in rows if fault != "ok"]


def _fault_of_episode(database: Database, row: tuple[Any, ...]) -> str:
    """Return the fault of an episode's record, "" if there is none."""
    if [type(part) for part in row] != [str, int, int]:
        return "its key makes no sense"
    key = Key(*row)
    try:
        events = database.past(key)
        calls = [event for event in events if isinstance(event, Call)]
        if [call.index for call in calls] != list(range(len(calls))):
            return "its calls are not in order"
        for call in calls:
            if len(call.logprobs) not in (0, len(call.completion)):
                return f"call {call.index} has {len(call.logprobs)} log-probabilities"
            if any(math.isnan(p) or p > 1e-3 for p in call.logprobs):
                return f"call {call.index} has impossible log-probabilities"
        episode = database.episode(key)
    except (DamagedRun, sqlite3.DatabaseError) as error:
        cause = error.__cause__ or error
        return " ".join(str(cause).split())[:160]
    return "" if episode is None else _fault_of_header(database, episode)


def _fault_of_header(database: Database, episode: Episode) -> str:
    """Return a fault if the columns of a finished episode differ from its JSON, else ""."""
    row = database._connection.execute(_REPEATED + OF_KEY, parts(episode.key)).fetchone()
    reward = float(episode.reward)
    known: tuple[Any, ...] = (
        episode.task.id,
        episode.task.environment,
        None if math.isnan(reward) else reward,
        episode.usage.turns,
        episode.usage.sampled_tokens,
    )
    if row != known:
        return "its columns differ from its JSON"
    used = episode.usage.turns or episode.usage.sampled_tokens
    return "its events are lost" if used and not (episode.calls or episode.steps) else ""


def _faults_of_the_rest(database: Database) -> Iterator[str]:
    """Yield the faults of blobs, metrics and documents."""
    connection = database._connection
    for (name,) in connection.execute("SELECT sha256 FROM blob").fetchall():
        row = connection.execute("SELECT data FROM blob WHERE sha256 = ?", (name,)).fetchone()
        if hashlib.sha256(row[0]).hexdigest() != name:
            yield f"blob {name} has other bytes than its hash says"
    for phase, step in connection.execute("SELECT phase, step FROM metric").fetchall():
        body = "SELECT body FROM metric WHERE phase = ? AND step = ?"
        yield _fault_of_json(connection, body, (phase, step), f"metrics of {phase} {step}")
    for (name,) in connection.execute("SELECT name FROM document").fetchall():
        body = "SELECT body FROM document WHERE name = ?"
        yield _fault_of_json(connection, body, (name,), f"document '{name}'")


def _fault_of_json(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...], what: str
) -> str:
    try:
        json.loads(connection.execute(query, values).fetchone()[0])
    except (DamagedRun, ValueError, TypeError) as error:
        return f"{what}: {' '.join(str(error.__cause__ or error).split())[:160]}"
    return ""


def _fault_of_about(run: Path) -> str:
    """Return the fault of run.json, "" if there is none."""
    file = run / "run.json"
    if not file.is_file():
        return "run.json is missing"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        datetime.fromisoformat(content["created"])
        stated = {name: str(content[name]) for name in ("format", "palaestra")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"run.json cannot be read ({error!r})"
    try:
        with aside(run / NAME) as connection:
            known = about(connection)
    except (DamagedRun, sqlite3.DatabaseError, OSError):
        return ""  # nothing to compare with
    for name in stated:
        if name in known and known[name] != stated[name]:
            return f"run.json says {name} {stated[name]}, and the database {known[name]}"
    return ""
