"""A run folder: everything one run wrote, in one place.

    run.json          format, version of palaestra, time of creation
    run.lock          held by the process that works on the run
    run.sqlite        events, episodes, metrics, documents (see `database.py`)
    checkpoints/      see `checkpoint.py`

`run.json` is written last: a folder that has it holds a whole run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from palaestra import __version__
from palaestra.core.errors import InputError
from palaestra.store import checkpoint
from palaestra.store.codec import JSON
from palaestra.store.database import FORMAT, Database, check_format
from palaestra.store.disk import is_full, replace_durably, storage_full
from palaestra.store.lock import RunLock


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a listing shows of a run."""

    path: Path
    created: datetime  # UTC
    palaestra: str  # the version that made it
    format: str  # of what is stored; see `database.FORMAT`

    @property
    def name(self) -> str:
        return self.path.name


class RunFolder:
    """One run on disk. Get one from `create`, `open` or `read`, and close it (or use `with`)."""

    def __init__(self, record: RunRecord, database: Database, lock: RunLock | None) -> None:
        self.record, self.path, self.database = record, record.path, database
        self.checkpoints = _checkpoints(record.path)
        self._lock = lock

    @classmethod
    def create(cls, path: Path, recipe: Mapping[str, JSON]) -> RunFolder:
        """Start a run in `path` and lock it; the recipe becomes the document "recipe".

        Raises:
            InputError: `path` already holds a run, or cannot be a folder.
            RunLocked: another process is creating a run there.
            StorageFull: there is no space.
        """
        path = Path(path).absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if is_full(error):
                raise storage_full("The run", path, error) from error
            raise InputError(
                f"No run can be made in {path}: {error}. Give another path."
            ) from error
        lock = _lock(path)
        try:
            return cls._start(path, recipe, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Take up the run in `path`: lock it, and clear what a killed process left half-written.

        Raises:
            InputError: there is no run in `path`.
            RunVersionMismatch: its format is another one.
            RunLocked: another process works on it.
        """
        record = _record(path)
        check_format(record.path, record.format, record.palaestra)
        lock = _lock(record.path)
        try:
            checkpoint.clean(_checkpoints(record.path))
            return cls(record, Database.open(_database_of(record)), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Look at the run in `path` without a lock; another process may work on it.

        Raises:
            InputError: there is no run in `path`.
            RunVersionMismatch: its format is another one.
        """
        record = _record(path)
        check_format(record.path, record.format, record.palaestra)
        return cls(record, Database.open(_database_of(record), readonly=True), None)

    def close(self) -> None:
        """Close the database, and let the next process in."""
        self.database.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @classmethod
    def _start(cls, path: Path, recipe: Mapping[str, JSON], lock: RunLock) -> RunFolder:
        if (path / "run.json").exists():
            raise InputError(
                f"{path} already holds a run. Resume it with `--resume {path}`, "
                "or give another path for a new one."
            )
        about = {
            "format": FORMAT,
            "palaestra": __version__,
            "created": datetime.now(UTC).isoformat(),
        }
        try:
            _checkpoints(path).mkdir(exist_ok=True)
            database = Database.open(_database_file(path))
            try:
                database.put("recipe", dict(recipe))
                replace_durably(path / "run.json", json.dumps(about, indent=2) + "\n")
            except BaseException:
                database.close()
                raise
        except OSError as error:
            if is_full(error):
                raise storage_full("The run", path, error) from error
            raise
        return cls(_record(path), database, lock)


def default_root() -> Path:
    """Where runs lie: the folder in the variable PALAESTRA_RUNS, or `runs` in the current one."""
    return Path(os.environ.get("PALAESTRA_RUNS") or "runs")


def new_run_path(root: Path, name: str) -> Path:
    """A path in `root` for a new run: `<name>-YYYYMMDD-HHMMSS` (local time), numbered if taken."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    stem = f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path(root) / stem, 2
    while path.exists():
        path, number = Path(root) / f"{stem}-{number}", number + 1
    return path


def list_runs(root: Path) -> list[RunRecord]:
    """The runs in `root`, newest first, of any format; whatever is no run is skipped."""
    records: list[RunRecord] = []
    for path in Path(root).iterdir() if Path(root).is_dir() else ():
        try:
            records.append(_record(path))
        except InputError:
            continue
    return sorted(records, key=lambda record: (record.created, record.name), reverse=True)


def _record(path: Path) -> RunRecord:
    """What `run.json` says; raises InputError where there is none, or it says nothing."""
    path = Path(path).absolute()
    try:
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        created = datetime.fromisoformat(about["created"]).astimezone(UTC)
        return RunRecord(path, created, str(about["palaestra"]), str(about["format"]))
    except (FileNotFoundError, NotADirectoryError):
        reason = "it has no run.json"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"its run.json cannot be read ({error!r})"
    raise InputError(
        f"There is no run in {path}: {reason}. `palaestra list runs` shows the runs there are."
    )


def _database_of(record: RunRecord) -> Path:
    """The database of an existing run, which must be there: a new one would hide the loss."""
    file = _database_file(record.path)
    if not file.is_file():
        raise InputError(f"The run {record.path} has lost its {file.name}; start a new run.")
    return file


def _database_file(path: Path) -> Path:
    return path / "run.sqlite"


def _lock(path: Path) -> RunLock:
    try:
        return RunLock(path / "run.lock")
    except OSError as error:
        raise InputError(
            f"{path} cannot be worked in: {error}. Check its permissions, or give another path."
        ) from error


def _checkpoints(path: Path) -> Path:
    return path / "checkpoints"
