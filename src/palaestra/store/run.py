"""A run folder: everything one run wrote, in one place.

    run.json          format, version of palaestra, time of creation
    run.lock          held by the process that works on the run
    run.sqlite        events, episodes, metrics, documents (see `database.py`)
    checkpoints/      see `checkpoint.py`

`run.json` is written last: a folder that has it holds a whole run. What it says stands in the
database as well, so it can be written anew (see `salvage.py`).
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
from types import TracebackType

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
from palaestra.store.schema import Durability, check_format


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a listing shows of a run."""

    path: Path
    created: datetime  # UTC
    palaestra: str  # the version that made it
    format: str  # of what is stored; see `schema.FORMAT`

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
    def create(
        cls,
        path: Path,
        recipe: Mapping[str, JSON],
        *,
        documents: Mapping[str, JSON] | None = None,
        durability: Durability = Durability.NORMAL,
    ) -> RunFolder:
        """Start a run in `path` and lock it. Where that fails, nothing of it is left.

        Args:
            path: made if it is not there.
            recipe: becomes the document "recipe".
            documents: others without which it would be no whole run.
            durability: of all that is recorded.

        Raises:
            InputError: `path` already holds a run, or cannot be a folder.
            DamagedRun: it holds the record of a run that has lost its run.json.
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
    def open(cls, path: Path) -> RunFolder:
        """Take up the run in `path`: lock it, and clear what a killed process left half-written.

        Raises:
            InputError: there is no run in `path`.
            DamagedRun: its record is not sound, so nothing may be added to it.
            RunVersionMismatch: its format is another one.
            RunLocked: another process works on it.
        """
        record = _record(path)
        check_format(record.path, record.format, record.palaestra)
        lock = _lock(record.path)
        try:
            database = Database.open(_database_of(record))
            try:
                database.check()
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
        """Look at the run in `path` without a lock; another process may work on it.

        Raises:
            InputError: there is no run in `path`.
            DamagedRun: its database is none, or not a whole one; as any later reading may.
            RunVersionMismatch: its format is another one.
        """
        record = _record(path)
        check_format(record.path, record.format, record.palaestra)
        return cls(record, Database.open(_database_of(record), readonly=True), None)

    @contextmanager
    def telling_versions(self) -> Iterator[None]:
        """Within it, settings of the run that cannot be understood are told with the versions.

        Raises:
            RunVersionMismatch: instead of InputError, if another version made the run.
        """
        try:
            yield
        except InputError as error:
            made = self.record.palaestra
            if made == __version__:
                raise
            raise RunVersionMismatch(
                f"{self.path} was made by palaestra {made}, and this is palaestra {__version__}, "
                f"which does not understand all of it: {error} Go on with the version that made it "
                f"(`pip install palaestra=={made}`), or start a new run."
            ) from error

    def note_version(self) -> str | None:
        """Keep in the document "versions" that this palaestra works on the run.

        Returns:
            what to say of it where another version worked on it before; else None.
        """
        known = self.database.get("versions") or [self.record.palaestra]
        if known[-1] == __version__:
            return None
        self.database.put("versions", [*known, __version__])
        return f"this run is of palaestra {known[-1]}; palaestra {__version__} goes on with it"

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
    """Write `run.json`, from what the database of the run in `path` says about itself."""
    about = database.about()
    text = {"format": int(about["format"]), **{n: about[n] for n in ("palaestra", "created")}}
    replace_durably(path / "run.json", json.dumps(text, indent=2) + "\n")


def default_root() -> Path:
    """Where runs lie: the folder in the variable PALAESTRA_RUNS, or `runs` in the current one."""
    return Path(os.environ.get("PALAESTRA_RUNS") or "runs")


def is_run(path: Path) -> bool:
    """Whether the folder holds a run, or what is left of one."""
    return (path / "run.json").is_file() or _database_file(path).is_file()


def run_path(name: str | Path) -> Path:
    """The folder of a run, by its path or its name among the runs; it need not be there."""
    path, named = Path(name), default_root() / name
    return named if not is_run(path) and is_run(named) else path


def new_run_path(root: Path, name: str) -> Path:
    """A path in `root` for a new run: `<name>-YYYYMMDD-HHMMSS` (local time), numbered if taken."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    stem = f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path(root) / stem, 2
    while path.exists():
        path, number = Path(root) / f"{stem}-{number}", number + 1
    return path


def list_runs(root: Path) -> list[RunRecord]:
    """The runs in `root`, newest first, of any format; whatever is no run is skipped.

    One that has lost its run.json is among them: reading it says what to do.
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
    if _database_file(path).is_file():
        raise DamagedRun(
            f"The run {path} is damaged: {reason}. `palaestra doctor {path}` writes it anew."
        )
    raise InputError(
        f"There is no run in {path}: {reason}. `palaestra list runs` shows the runs there are."
    )


def _make(path: Path) -> list[Path]:
    """Make a folder; returns those that were not there before, innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in made:
            sync(folder.parent)
    except OSError as error:
        _unmake(made)
        if is_full(error):
            raise storage_full("The run", path, error) from error
        raise InputError(f"No run can be made in {path}: {error}. Give another path.") from error
    return made


def _unmake(made: Sequence[Path]) -> None:
    """Remove the folders that `_make` made, as far as nobody else has put anything there."""
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _check_new(path: Path) -> None:
    """Raise unless the folder holds no run, and clear what a kill left of one that never began."""
    if (path / "run.json").exists():
        raise InputError(
            f"{path} already holds a run. Resume it with `--resume {path}`, "
            "or give another path for a new one."
        )
    file, checkpoints = _database_file(path), _checkpoints(path)
    begun = checkpoints.is_dir() and any(checkpoints.iterdir())
    if file.exists() and not begun:
        database = Database.open(file, readonly=True)
        begun = database.holds_anything()
        database.close()
    if begun:
        raise DamagedRun(
            f"{path} holds a run that has lost its run.json: `palaestra doctor {path}` writes it "
            "anew. Give another path for a new run."
        )
    _clear(path)


def _clear(path: Path) -> None:
    """Remove what is there of a run that has not begun."""
    for file in (*path.glob(f"{NAME}*"), *path.glob(f".{NAME}-*"), *path.glob(".run.json-*")):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        _checkpoints(path).rmdir()


def _database_of(record: RunRecord) -> Path:
    """The database of an existing run, which must be there: a new one would hide the loss."""
    file = _database_file(record.path)
    if not file.is_file():
        raise DamagedRun(f"The run {record.path} has lost its {file.name}; start a new run.")
    return file


def _database_file(path: Path) -> Path:
    return path / NAME


def _lock(path: Path) -> RunLock:
    try:
        return RunLock(path / "run.lock")
    except OSError as error:
        raise InputError(
            f"{path} cannot be worked in: {error}. Check its permissions, or give another path."
        ) from error


def _checkpoints(path: Path) -> Path:
    return path / "checkpoints"
