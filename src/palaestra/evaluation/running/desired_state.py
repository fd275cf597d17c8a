"""The desired state of an evaluation: control of a run that another process works on.

It is a state, not a command: `control.json` in the run's folder says how the run should be
(paused, cancelled, its concurrency). The file is replaced as a whole under a lock, so no change is
lost or read half-written, and a repeated change has no effect. The worker polls it several times
a second and records in the run which state it has applied. A pause outlasts a killed process; a
cancellation ends with the process that applied it.
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

from palaestra.core.errors import InputError
from palaestra.store.disk import replace_durably

FILE = "control.json"
APPLIED = "control"  # the document of a run that holds the state last applied


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The state that a run should reach."""

    serial: int = 0  # incremented with each change
    paused: bool = False
    cancelled: bool = False
    concurrency: int | None = None  # episodes at once; None: as the evaluation was started


def read(run: Path) -> DesiredState:
    """Read the desired state; raise InputError if the file is damaged."""
    try:
        text = (run / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return DesiredState()
    try:
        return DesiredState(**json.loads(text))
    except (ValueError, TypeError):
        raise InputError(f"{run / FILE} is not a valid control file; delete it.") from None


def change(run: Path, **fields: Any) -> DesiredState:
    """Change some fields of the desired state and return it; other fields stay.

    Raises:
        InputError: the folder cannot be written to.
    """
    try:
        with _locked(run):
            before = read(run)
            after = replace(before, **fields)
            if after == before:
                return before
            after = replace(after, serial=before.serial + 1)
            replace_durably(run / FILE, json.dumps(asdict(after)) + "\n")
            return after
    except OSError as error:
        raise InputError(f"{run} cannot be controlled: {error}; check its permissions.") from error


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    descriptor = os.open(run / "control.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
