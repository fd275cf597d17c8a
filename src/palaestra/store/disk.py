"""Durable writes to disk, and the detection of a full disk.

"Full" means that no more can be written for any reason: no space left, a quota, or the
process's own limit on file sizes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palaestra.core.errors import InputError, StorageFull

FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


def is_full(error: Exception) -> bool:
    """Return whether `error`, of Python or of a Rust library, means a full disk."""
    if isinstance(error, OSError):
        return error.errno in FULL
    code = re.search(r"os error (\d+)", str(error))
    return code is not None and int(code[1]) in FULL


def write_error(file: Path) -> OSError | None:
    """Return the error of extending a file as long as `file`, in its folder; or None.

    It finds the reason for callers that know only that a write failed.
    """
    probe = file.with_name(f".probe-{os.getpid()}")
    try:
        length = file.stat().st_size if file.exists() else 0
        with probe.open("wb", buffering=0) as stream:
            stream.seek(length)  # leaves a hole, which takes no space
            for _ in range(16):
                stream.write(bytes(4096))
            os.fsync(stream.fileno())
    except OSError as error:
        return error
    finally:
        probe.unlink(missing_ok=True)
    return None


def storage_full(
    what: str,
    folder: Path,
    cause: BaseException,
    needed: int | None = None,
    then: str = "resume the run; what was stored before is intact",
) -> StorageFull:
    """Return the error to raise when `what`, of `needed` bytes, did not fit into `folder`."""
    need = "" if needed is None else f" It needs {readable_size(needed)};"
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = readable_size(shutil.disk_usage(there).free)
    return StorageFull(
        f"{what} could not be written to {folder}: {cause}.{need} {free} are free there. "
        f"Free some space (or raise the quota, or `ulimit -f`), then {then}."
    )


def readable_size(count: int) -> str:
    """Return a number of bytes as text, e.g. "1.6 GB"."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def write_durably(file: Path, text: str) -> None:
    """Write a new file and wait until it is on disk."""
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def replace_durably(file: Path, text: str) -> None:
    """Replace the text of `file` atomically: readers and crashes see the old or the new text."""
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        write_durably(fresh, text)
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(file.parent)


@contextmanager
def replacing_file(file: Path) -> Iterator[Path]:
    """Yield a path to write to; what is there at the end replaces `file` atomically.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        yield fresh
        sync(fresh)
        fresh.replace(file)
        sync(file.parent)
    except OSError as error:
        if is_full(error):
            raise storage_full(file.name, file.parent, error) from error
        raise InputError(f"{file} cannot be written: {error}. Give another path.") from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


@contextmanager
def replacing(folder: Path, what: str) -> Iterator[Path]:
    """Yield a new folder to fill, which replaces `folder` once all of it is on disk.

    One process at a time may do so. The next one clears the leftovers of a killed one.

    Raises:
        StorageFull: `what` does not fit; `folder` is as it was.
    """
    fresh, old = (folder.with_name(f".{folder.name}-{part}") for part in ("new", "old"))
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        yield fresh
        for path in (*fresh.rglob("*"), fresh):
            sync(path)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        sync(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        if isinstance(error, Exception) and is_full(error):
            raise storage_full(what, folder.parent, error) from error
        raise


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
