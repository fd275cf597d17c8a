"""The disk: writes that last, and a full disk told from every other failure.

"Full" means that no more can be written, whatever the reason: no space left, a
quota, or the process's own limit on the size of a file.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palaestra.core.errors import StorageFull

FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


def is_full(error: Exception) -> bool:
    """Whether `error`, of Python or of a Rust library, says that no more can be written."""
    if isinstance(error, OSError):
        return error.errno in FULL
    code = re.search(r"os error (\d+)", str(error))
    return code is not None and int(code[1]) in FULL


def refusal(file: Path) -> OSError | None:
    """The error that a file as long as `file`, beside it, gets when it is extended now; or None.

    For callers that are told only that a write failed: this asks the disk why.
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
    """The error to raise when `what`, of `needed` bytes, did not fit into `folder`."""
    need = "" if needed is None else f" It needs {readable_size(needed)};"
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = readable_size(shutil.disk_usage(there).free)
    return StorageFull(
        f"{what} could not be written to {folder}: {cause}.{need} {free} are free there. "
        f"Free some space (or raise the quota, or `ulimit -f`), then {then}."
    )


def readable_size(count: int) -> str:
    """A number of bytes for people, e.g. "1.6 GB"."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def write_durably(file: Path, text: str) -> None:
    """Write a new file and wait until the disk has it."""
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def replace_durably(file: Path, text: str) -> None:
    """Write `file` so that a reader, or a crash, sees the old text or the new one whole."""
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        write_durably(fresh, text)
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(file.parent)


@contextmanager
def replacing(folder: Path, what: str) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` once the disk has all of it.

    One process at a time may do so. What it left where it was killed is cleared by the next.

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
    """Wait until the disk has a file's content, or a folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
