"""The cache of converted models: a folder is whole or absent, checked at each use, built once.

A folder is built atomically and under a lock, with the size and SHA-256 of every file in
`manifest.json`. Each later use checks both (see `file_hashes` for when a hash is computed again).
Files that do not match are rebuilt, never loaded.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palaestra.core.errors import CorruptCache, InputError, PalaestraError, StorageFull
from palaestra.models.local.file_hashes import sha256

Progress = Callable[[str], None]

FORMAT = 1  # raise it when a conversion changes: older caches are then rebuilt
MANIFEST = "manifest.json"


def cached(folder: Path, build: Callable[[Path], None], progress: Progress) -> Path:
    """Return `folder`, filled by `build` unless it already matches its manifest.

    Args:
        folder: where the files are stored; its parent is created.
        build: writes the files into the empty folder that it is given.
        progress: called with a sentence if the cache was damaged, or another process is building.

    Raises:
        CorruptCache: the folder was damaged, and rebuilding it failed.
        InputError: the cache cannot be written.
        StorageFull: the disk is full.
        Others: what `build` raises if the folder did not exist before.
    """
    if folder.is_dir() and _damage(folder) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, progress):
            damage = _damage(folder) if folder.is_dir() else None
            if folder.is_dir() and damage is None:
                return folder  # another process built it while this one waited
            if damage:
                progress(f"the cached model in {folder} is damaged ({damage}): rebuilding it…")
            _build(folder, build, damage)
    except OSError as error:
        raise storage_error(folder, error) from error
    return folder


def _build(folder: Path, build: Callable[[Path], None], damage: str | None) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed process: this one has the lock
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        build(part)
        _write_manifest(part)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    except PalaestraError as error:
        if damage is None or isinstance(error, CorruptCache):
            raise
        raise CorruptCache(
            f"The cached model in {folder} is damaged ({damage}) and could not be rebuilt: {error}"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {
        file.name: {"size": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(folder.iterdir())
    }
    text = json.dumps({"format": FORMAT, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _damage(folder: Path) -> str | None:
    """Return what is wrong with a cached folder, in a few words; None if nothing is."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return "it was converted by another version"
        files = {
            name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} cannot be read"
    for name, (size, _) in files.items():  # sizes first: they cost nothing
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (folder / name).stat().st_size != size:
            return f"{name} does not have its recorded size"
    for name, (_, digest) in files.items():
        try:
            if sha256(folder / name) != digest:
                return f"{name} does not match its recorded hash"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


@contextmanager
def _locked(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a cached folder; the system frees it if this process dies."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is preparing the same model: waiting for it…")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def storage_error(folder: Path, error: OSError) -> PalaestraError:
    """Return the error to raise when a model cannot be written to `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"The disk was full while a model was written to {folder}; free some space, or set "
            "PALAESTRA_CACHE to a folder on another disk."
        )
    return InputError(
        f"The model cache {folder.parent} cannot be used ({error.strerror or error}); "
        "set PALAESTRA_CACHE to a folder that you can write to."
    )
