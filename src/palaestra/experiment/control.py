"""Control from outside: what somebody wishes of an evaluation that another process works on.

The wish is a state, not a command: `control.json` in the run's folder says how the run should
be (paused, cancelled, how many episodes at once), and is replaced whole under a lock, so no
wish is lost or read half-written, and saying the same twice changes nothing. The worker looks
at it several times a second and notes in the run which wish it has obeyed. A pause outlasts a
killed process; a cancellation ends with the process that obeyed it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from palaestra.core.errors import InputError
from palaestra.store.disk import replace_durably

FILE = "control.json"
OBEYED = "control"  # the document of a run that holds the wish last obeyed


@dataclass(frozen=True, slots=True)
class Wish:
    """How the run should be."""

    serial: int = 0  # one more with each change
    paused: bool = False
    cancelled: bool = False
    concurrency: int | None = None  # episodes at once; None: as the evaluation was started


def read(run: Path) -> Wish:
    """The present wish; raises InputError where the file was damaged by hand."""
    try:
        text = (run / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Wish()
    try:
        return Wish(**json.loads(text))
    except (ValueError, TypeError):
        raise InputError(f"{run / FILE} cannot be read; delete it.") from None


def change(run: Path, **wished: Any) -> Wish:
    """Wish something else of the run; what is not named stays as it was wished before.

    Raises:
        InputError: the folder cannot be written to.
    """
    try:
        with _locked(run):
            before = read(run)
            after = replace(before, **wished)
            if after == before:
                return before
            after = replace(after, serial=before.serial + 1)
            replace_durably(run / FILE, json.dumps(asdict(after)) + "\n")
            return after
    except OSError as error:
        raise InputError(f"{run} cannot be controlled: {error}. Check its permissions.") from error


def worker(run: Path) -> int | None:
    """The process that works on the run; None: nobody does.

    Told by the run's lock without touching it. A number that the system has given to another
    process since is not mistaken for it.
    """
    lock = run / "run.lock"
    try:
        number = int(lock.read_text().strip() or 0)
        since = lock.stat().st_mtime
        alive = number > 0 and psutil.Process(number).create_time() <= since + 1.0
    except (OSError, ValueError, psutil.Error):
        return None
    return number if alive else None


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    descriptor = os.open(run / "control.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
