"""A run folder: everything that one run wrote.

    run.json          format, version of palaestra, time of creation
    run.lock          held by the process that works on the run, and names it
    run.sqlite        events, episodes, metrics, documents (see `database.py`)
    checkpoints/      see `checkpoint.py`

`run.json` is written last, so a folder with it holds a complete run. Its content is in the
database as well, so it can be rebuilt (see `salvage.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from palaestra import __version__
from palaestra.core.errors import (
    DamagedRun,
    InputError,
    RunLocked,
    RunVersionMismatch,
    StorageFull,
)
from palaestra.store import checkpoint
from palaestra.store.codec import JSON
from palaestra.store.damage import NAME
from palaestra.store.database import Database
from palaestra.store.disk import is_full, replace_durably, storage_full, sync
from palaestra.store.lock import RunLock
from palaestra.store.migration import BEFORE
from palaestra.store.schema import Durability, check_format
from palaestra.store.take_over import check_quiet, replace_database


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The fields of a run in a listing."""

    path: Path
    created: datetime  # UTC
    palaestra: str  # the version that made it
    format: str  # of what is stored; see `schema.FORMAT`

    @property
    def name(self) -> str:
        return self.path.name


class RunFolder:
    """One run on disk. Make one with `create`, `open` or `read`, and close it (or use `with`)."""

    def __init__(self, record: RunRecord, database: Database, lock: RunLock | None) -> None:
        self.record, self.path, self.database = record, record.path, database
        self.checkpoints = _checkpoints(record.path)
        self._lock = lock

    @classmethod
    def create(
        cls,
        path: Path,
        recipe: Mapping[str, JSON],
        *,
        documents: Mapping[str, JSON] | None = None,
        durability: Durability = Durability.NORMAL,
    ) -> RunFolder:
        """Create a run in `path` and lock it; a failure leaves no files.

        Args:
            path: created if it does not exist.
            recipe: stored as the document "recipe".
            documents: further documents that a complete run needs.
            durability: of all records.

        Raises:
            InputError: `path` already holds a run, or cannot be a folder.
            DamagedRun: it holds the database of a run without its run.json.
            RunLocked: another process is creating a run there.
            StorageFull: there is no space.
        """
        path = Path(path).absolute()
        made, locked = _make(path), (path / "run.lock").exists()
        try:
            lock = _lock(path)
            try:
                _check_new(path)
                return cls._start(
                    path, {**(documents or {}), "recipe": dict(recipe)}, durability, lock
                )
            except BaseException:
                lock.release()
                raise
        except RunLocked:
            raise
        except BaseException as error:
            if not locked:
                (path / "run.lock").unlink(missing_ok=True)
            _unmake(made)
            if isinstance(error, StorageFull):
                again = "start the run again; nothing of it is left"
                cause = error.__cause__ or error
                raise storage_full("The new run", path, cause, then=again) from error
            raise

    @classmethod
    def open(cls, path: Path, *, take_over: bool = False) -> RunFolder:
        """Open the run in `path` for writing: lock it, and remove a killed process's partial files.

        A run of the previous format is migrated (see `migration.py`).

        Args:
            path: of the run.
            take_over: whether to take it from a process that is frozen or cannot be reached, and
                that will be refused from then on (see `take_over.py`).

        Raises:
            InputError: there is no run in `path`.
            DamagedRun: its database is damaged, so nothing may be added to it.
            RunVersionMismatch: it has another format.
            RunLocked: another process is working on it.
        """
        record = _record(path)
        older = record.format == BEFORE
        if not older:
            check_format(record.path, record.format, record.palaestra)
        if take_over:
            check_quiet(_database_of(record))
        lock = _lock(record.path, take_over)
        try:
            if lock.taken_over:
                replace_database(_database_of(record))
            database = Database.open(_database_of(record))
            try:
                database.check()
                if older:
                    write_about(record.path, database)
            except BaseException:
                database.close()
                raise
            checkpoint.clean(_checkpoints(record.path))
            return cls(record, database, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Open the run in `path` for reading, without a lock; another process may work on it.

        Raises:
            InputError: there is no run in `path`.
            DamagedRun: its database is damaged; later reads may raise it as well.
            RunVersionMismatch: it has another format.
        """
        record = _record(path)
        check_format(record.path, record.format, record.palaestra)
        return cls(record, Database.open(_database_of(record), readonly=True), None)

    @contextmanager
    def explaining_versions(self) -> Iterator[None]:
        """Name the versions in errors about the run's settings, if another version made the run.

        Raises:
            RunVersionMismatch: in place of InputError, if another version made the run.
        """
        try:
            yield
        except InputError as error:
            made = self.record.palaestra
            if made == __version__:
                raise
            raise RunVersionMismatch(
                f"{self.path} was made by palaestra {made}, and this is palaestra {__version__}, "
                f"which does not understand all of it: {error} Use the version that made it "
                f"(`pip install palaestra=={made}`), or start a new run."
            ) from error

    def note_version(self) -> str | None:
        """Add this version of palaestra to the document "versions" of the run.

        Returns:
            a message if another version worked on the run before; else None.
        """
        known = self.database.get("versions") or [self.record.palaestra]
        if known[-1] == __version__:
            return None
        self.database.put("versions", [*known, __version__])
        return f"this run is of palaestra {known[-1]}; palaestra {__version__} continues it"

    def close(self) -> None:
        """Close the database and release the lock."""
        self.database.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def _start(
        cls, path: Path, documents: Mapping[str, JSON], durability: Durability, lock: RunLock
    ) -> RunFolder:
        try:
            _checkpoints(path).mkdir(exist_ok=True)
            database = Database.open(_database_file(path), durability=durability)
            try:
                for name, document in documents.items():
                    database.put(name, document)
                write_about(path, database)
            except BaseException:
                database.close()
                raise
        except BaseException as error:
            _clear(path)
            if isinstance(error, OSError) and is_full(error):
                raise storage_full("The run", path, error) from error
            raise
        return cls(_record(path), database, lock)


def write_about(path: Path, database: Database) -> None:
    """Write `run.json` from the metadata in the database of the run in `path`."""
    about = database.about()
    text = {"format": int(about["format"]), **{n: about[n] for n in ("palaestra", "created")}}
    replace_durably(path / "run.json", json.dumps(text, indent=2) + "\n")


def default_root() -> Path:
    """Return the folder of runs: the variable PALAESTRA_RUNS, or `runs` in the current folder."""
    return Path(os.environ.get("PALAESTRA_RUNS") or "runs")


def is_run(path: Path) -> bool:
    """Return whether the folder holds a run, or the remains of one."""
    return (path / "run.json").is_file() or _database_file(path).is_file()


def run_path(name: str | Path) -> Path:
    """Return the folder of a run, by its path or its name among the runs; it need not exist."""
    path, named = Path(name), default_root() / name
    return named if not is_run(path) and is_run(named) else path


def new_run_path(root: Path, name: str) -> Path:
    """Return a new path in `root`: `<name>-YYYYMMDD-HHMMSS` (local time), numbered if it exists."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    stem = f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path(root) / stem, 2
    while path.exists():
        path, number = Path(root) / f"{stem}-{number}", number + 1
    return path


def list_runs(root: Path) -> list[RunRecord]:
    """Return the runs in `root`, newest first, of any format; other files are skipped.

    A run without its run.json is included: the error of reading it names the remedy.
    """
    records: list[RunRecord] = []
    for path in Path(root).iterdir() if Path(root).is_dir() else ():
        try:
            records.append(_record(path))
        except DamagedRun:
            written = datetime.fromtimestamp(_database_file(path).stat().st_mtime, UTC)
            records.append(RunRecord(path.absolute(), written, "?", "?"))
        except InputError:
            continue
    return sorted(records, key=lambda record: (record.created, record.name), reverse=True)


def _record(path: Path) -> RunRecord:
    """Return the content of `run.json`; raises InputError if it is missing or invalid."""
    path = Path(path).absolute()
    try:
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        created = datetime.fromisoformat(about["created"]).astimezone(UTC)
        return RunRecord(path, created, str(about["palaestra"]), str(about["format"]))
    except (FileNotFoundError, NotADirectoryError):
        reason = "it has no run.json"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"its run.json cannot be read ({error!r})"
    if _database_file(path).is_file():
        raise DamagedRun(
            f"The run {path} is damaged: {reason}. `palaestra doctor {path}` rebuilds it."
        )
    raise InputError(
        f"There is no run in {path}: {reason}. `palaestra list runs` shows the runs there are."
    )


def _make(path: Path) -> list[Path]:
    """Make a folder; return the folders that did not exist before, innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in made:
            sync(folder.parent)
    except OSError as error:
        _unmake(made)
        if is_full(error):
            raise storage_full("The run", path, error) from error
        raise InputError(f"{path} cannot hold a run: {error}. Give another path.") from error
    return made


def _unmake(made: Sequence[Path]) -> None:
    """Remove the folders that `_make` made, as far as they are empty."""
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _check_new(path: Path) -> None:
    """Raise if the folder holds a run; remove the remains of one that never started."""
    if (path / "run.json").exists():
        raise InputError(
            f"{path} already holds a run. Resume it with `--resume {path}`, "
            "or give another path for a new one."
        )
    file, checkpoints = _database_file(path), _checkpoints(path)
    started = checkpoints.is_dir() and any(checkpoints.iterdir())
    if file.exists() and not started:
        database = Database.open(file, readonly=True)
        started = database.holds_anything()
        database.close()
    if started:
        raise DamagedRun(
            f"{path} holds a run that has lost its run.json; `palaestra doctor {path}` rebuilds "
            "it. Give another path for a new run."
        )
    _clear(path)


def _clear(path: Path) -> None:
    """Remove the files of a run that has not started."""
    for file in (*path.glob(f"{NAME}*"), *path.glob(f".{NAME}-*"), *path.glob(".run.json-*")):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        _checkpoints(path).rmdir()


def _database_of(record: RunRecord) -> Path:
    """Return the database file of an existing run; raises if it is missing."""
    file = _database_file(record.path)
    if not file.is_file():
        raise DamagedRun(f"The run {record.path} has lost its {file.name}; start a new run.")
    return file


def _database_file(path: Path) -> Path:
    return path / NAME


def _lock(path: Path, take_over: bool = False) -> RunLock:
    try:
        return RunLock(path / "run.lock", take_over=take_over)
    except OSError as error:
        raise InputError(
            f"{path} cannot be worked in: {error}. Check its permissions, or give another path."
        ) from error


def _checkpoints(path: Path) -> Path:
    return path / "checkpoints"
