"""The salvage of a damaged run: all readable data becomes a new run; the old one stays as it is.

Rows are read in the order of their numbers; after a failure, reading continues from the next
readable number. An episode with an incomplete record is left out: resuming the new run repeats it
if its stage is not over.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.errors import DamagedRun, InputError
from palaestra.store import checkpoint
from palaestra.store.codec import JSON
from palaestra.store.damage import NAME, Connection
from palaestra.store.database import Database
from palaestra.store.disk import is_full, storage_full
from palaestra.store.examine import aside, created, faults_of_episodes
from palaestra.store.lock import RunLock
from palaestra.store.run_folder import RunFolder, write_about

_COLUMNS = {  # the order in which tables are copied
    "blob": "sha256, data",
    "event": "id, before, kind, body, prompt, completion, logprobs, tools",
    "record": 'id, phase, "group", member, last, calls, steps',
    "episode": 'id, phase, "group", member, task, agent, observation, outcome, usage, progress,'
    " labels, task_id, environment, reward, turns, sampled_tokens",
    "metric": "phase, step, body",
    "document": "name, body",
}
_BATCH = 500  # rows written in one transaction
_FAR = 1 << 62  # an upper bound of row numbers
_OWN = ("run.", ".run.", "control.", "search-")  # prefixes of files that a new run creates
_DAMAGE = (DamagedRun, sqlite3.DatabaseError)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The new run, and what is missing from it."""

    run: Path
    episodes: dict[str, int]  # the number of finished ones by phase
    unfinished: int  # episodes in progress
    dropped: int  # episodes of which only a part was readable
    recipe: bool  # whether the recipe was readable, so that the run can be resumed
    left: list[str]  # files that were unreadable or damaged


def salvage(run: Path, to: Path) -> Salvaged:
    """Copy all readable data of the damaged run in folder `run` into a new one in `to`.

    Raises:
        InputError: `to` exists, or nothing of the database is readable.
        StorageFull: there is no space.
    """
    run, to = Path(run).absolute(), Path(to).absolute()
    if to.exists():
        raise InputError(f"{to} exists already; give another folder.")
    with aside(run / NAME) as broken:
        documents = dict(_documents(broken))
        if not documents and next(_rows(broken, "episode"), None) is None:
            raise InputError(f"Nothing of the record of {run} can be read; start the run again.")
        recipe = documents.pop("recipe", None)
        try:
            with RunFolder.create(to, recipe or {}, documents=documents) as made:
                return _filled(run, broken, made, recipe is not None)
        except BaseException as error:
            shutil.rmtree(to, ignore_errors=True)
            if isinstance(error, OSError) and is_full(error):
                raise storage_full("What is saved", to, error, then="try again") from error
            raise


def rebuild_about(run: Path) -> None:
    """Rebuild run.json from the metadata in the database of the run in folder `run`.

    Raises:
        RunLocked: a process is working on the run.
        DamagedRun: the database is damaged.
    """
    began = created(run)
    lock = RunLock(run / "run.lock")
    try:
        database = Database.open(run / NAME)
        try:
            if "created" not in database.about():  # a run of an older version
                database.note(created=began.isoformat())
            write_about(run, database)
        finally:
            database.close()
    finally:
        lock.release()


# ── details ──────────────────────────────────────────────────────────────────


def _filled(run: Path, broken: Connection, made: RunFolder, recipe: bool) -> Salvaged:
    database = made.database
    for table in ("blob", "event", "record", "episode", "metric"):
        _copy(broken, database, table)
    dropped = [key for key, _ in faults_of_episodes(database)]
    database.drop(dropped)
    database.note(**_about(run, broken))
    write_about(made.path, database)
    left = _copy_files(run, made.path)
    kept = Counter(summary.key.phase for summary in database.summaries())
    finished = {summary.key for summary in database.summaries()}
    unfinished = sum(key not in finished for key in database.recorded())
    database.put("salvaged", {"of": run.name, "dropped": [str(key) for key in dropped]})
    database.check()
    return Salvaged(made.path, dict(kept), unfinished, len(dropped), recipe, left)


def _about(run: Path, broken: Connection) -> dict[str, str]:
    """Return the version and time of the run, from its database, its run.json or its files."""
    found = {"created": created(run).isoformat()}
    try:
        content = json.loads((run / "run.json").read_text(encoding="utf-8"))
        found |= {name: str(content[name]) for name in ("palaestra", "created")}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    known = dict(row[1:] for row in _rows(broken, "meta", "name, value"))
    return found | {n: v for n, v in known.items() if n in ("palaestra", "created", "durability")}


def _documents(broken: Connection) -> Iterator[tuple[str, JSON]]:
    for _, name, body in _rows(broken, "document"):
        try:
            yield str(name), json.loads(body)
        except (ValueError, TypeError):
            continue


def _copy(broken: Connection, database: Database, table: str) -> None:
    """Copy the readable rows of a table; rows that violate a constraint are left out."""
    columns = _COLUMNS[table]
    marks = ", ".join("?" * (columns.count(",") + 1))
    statement = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})"
    batch: list[tuple[Any, ...]] = []
    for row in _rows(broken, table):
        batch.append(row[1:])
        if len(batch) == _BATCH:
            database.write_all(statement, batch)
            batch = []
    database.write_all(statement, batch)


def _rows(broken: Connection, table: str, columns: str | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows of a table, each after its number, in order."""
    chosen = columns or _COLUMNS[table]
    query = f"SELECT rowid, {chosen} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
    last = 0
    while True:
        try:
            for row in broken.execute(query, (last,)):
                if row[0] <= last:  # the pages form a cycle
                    raise DamagedRun(f"{table} leads back to row {row[0]}")
                last = row[0]
                yield row
            return
        except _DAMAGE:
            beyond = _beyond(broken, query, last)
        if beyond is None:
            return
        last = beyond


def _beyond(broken: Connection, query: str, last: int) -> int | None:
    """Return the least number after which rows are readable again; None without one."""

    def readable(after: int) -> bool:
        try:
            row = broken.execute(f"{query} LIMIT 1", (after,)).fetchone()
        except _DAMAGE:
            return False
        return row is None or row[0] > after

    step = 1
    while not readable(last + step):
        step *= 2
        if step > _FAR:
            return None
    low, high = last + step // 2, last + step  # not readable (but for the first step), readable
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(middle) else (middle, high)
    return high


def _copy_files(run: Path, to: Path) -> list[str]:
    """Copy the intact files beside the database; return the names of the rest."""
    left: list[str] = []
    for path in sorted(run.iterdir()):
        if path.name.startswith(_OWN) or path.name == "checkpoints":
            continue
        try:
            if path.is_dir():
                shutil.copytree(path, to / path.name)
            else:
                shutil.copy2(path, to / path.name)
        except OSError as error:  # or shutil's own, which is one
            if is_full(error):
                raise
            left.append(path.name)
    folder = run / "checkpoints"
    for name in checkpoint.names(folder):
        try:
            checkpoint.check(folder, name)
            shutil.copytree(folder / name, to / "checkpoints" / name)
        except checkpoint.CorruptCheckpoint:
            left.append(f"checkpoints/{name}")
    return left
