"""The lock of a run: one process works on a run folder at a time.

The lock is the kernel's (`flock`), so it is released when its holder dies for any
reason. Worker processes forked by the holder do not keep it. On a file system that machines
share, the kernel may not know of locks on other machines, so the file names its holder as well.
A frozen or unreachable holder is passed over with `take_over`: a new file replaces the locked one.
"""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from palaestra.core.errors import RunLocked
from palaestra.store.disk import is_full, storage_full


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that took a lock and did not release it; it may have died."""

    pid: int
    host: str = ""  # unknown in files of older versions
    kernel: str = ""  # which its locks are known to

    @classmethod
    def of(cls, file: Path) -> Holder | None:
        """Return what the file of a lock says; None: it was released, or cannot be read."""
        try:
            words = file.read_text().split()
            return cls(int(words[0]), *words[1:3])
        except (OSError, ValueError, IndexError):
            return None

    @property
    def elsewhere(self) -> bool:
        """Whether it is on another machine, where it may be alive although no lock shows it."""
        return bool(self.host) and self.host != socket.gethostname() and self.kernel != _kernel()

    def __str__(self) -> str:
        return f"process {self.pid}{f' on {self.host}' if self.elsewhere else ''}"


class RunLock:
    """The lock of a run, held from construction to `release`."""

    def __init__(self, file: Path, *, take_over: bool = False) -> None:
        """Take the lock on `file`, which is created if needed and names the holder.

        With `take_over`, a process that may still hold it loses it; then `taken_over` is true.

        Raises:
            RunLocked: another process holds it.
            StorageFull: there is no space to write the holder.
        """
        holder = Holder.of(file) if file.exists() else None
        self.taken_over = False
        self._descriptor = _locked(file)
        if self._descriptor is not None and not (holder and holder.elsewhere):
            self._sign(file)
            return
        self._drop()
        if not take_over:
            raise RunLocked(_held_text(file, holder))
        self.taken_over = True
        fresh = file.with_name(f".{file.name}-{socket.gethostname()}-{os.getpid()}")
        fresh.unlink(missing_ok=True)
        self._descriptor = _locked(fresh)
        self._sign(fresh)
        fresh.replace(file)

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._descriptor is None:
            return
        _held.discard(self)
        os.ftruncate(self._descriptor, 0)
        self._drop()

    def _sign(self, file: Path) -> None:
        """Write this process into the locked file."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, 0)
            text = f"{os.getpid()}\n{socket.gethostname()} {_kernel()}\n"
            os.pwrite(self._descriptor, text.encode(), 0)
        except OSError as error:
            self._drop()
            if is_full(error):
                raise storage_full("The lock of the run", file.parent, error) from error
            raise
        _held.add(self)

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(file: Path) -> int | None:
    """Return the descriptor of the file, locked; None if another process has locked it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _held_text(file: Path, holder: Holder | None) -> str:
    """Return why the lock cannot be had, and what to do."""
    text = f"The run {file.parent} is being worked on by {holder or 'another process'}"
    if holder is not None and holder.elsewhere:
        return (
            f"{text}, which cannot be seen from here; if it has ended or its machine is lost, "
            "resume with --take-over, and whatever it still writes is refused."
        )
    if holder is not None and _frozen(holder.pid):
        return (
            f"{text}, which is stopped; continue it (kill -CONT {holder.pid}), or resume with "
            "--take-over, and whatever it still writes is refused."
        )
    return f"{text}; wait until it ends, or stop it, and try again."


def _frozen(pid: int) -> bool:
    import psutil  # takes a while

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except (psutil.Error, ValueError):
        return False


@cache
def _kernel() -> str:
    """Return what tells this run of this machine's kernel from others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


_held: set[RunLock] = set()


def _drop_all() -> None:
    for lock in _held:
        lock._drop()
    _held.clear()


# A forked child shares its parent's flock, and would hold it after the parent's death.
os.register_at_fork(after_in_child=_drop_all)
