"""The work folder, accessed from outside; its contents are never trusted.

Every path is walked one name at a time below the folder, so a link, a fifo or a device that a
program created there gives no access to the rest of this machine. Archives hold plain files,
folders and links that stay inside; equal folders give equal bytes, whenever they were written.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.sandbox.base import WORK

DEPTH = 128  # nested folders; deeper entries are not listed and not saved
LINKS = 32  # links followed for one file
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Folder:
    """A work folder on this machine."""

    path: Path
    owner: int | None = None  # owner of new files; None: the user of this process

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing any entry of its name; see `Sandbox.write`."""
        parts = inside(name)
        if not parts:
            raise InputError(f"'{name}' is the work folder itself; name a file in it.")
        try:
            with self._opened(parts[:-1], make=True) as folder:
                self._put(folder, parts[-1], data, 0o644)
        except OSError as error:
            raise InputError(
                f"'{name}' cannot be written into the work folder: {_reason(error)}."
            ) from None

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; links inside the folder are followed, others refused."""
        parts = inside(name)
        for _ in range(LINKS):
            try:
                found = self._read(parts)
            except OSError as error:
                raise InputError(
                    f"'{name}' cannot be read in the work folder: {_reason(error)}; "
                    "`files` lists what is there."
                ) from None
            if isinstance(found, bytes):
                return found
            parts = found
        raise InputError(f"'{name}' cannot be read in the work folder: too many links.")

    def files(self) -> dict[str, int]:
        """Return the path and size of every plain file, ordered by path."""
        return {path: info.st_size for path, info in self._walk() if stat.S_ISREG(info.st_mode)}

    def used(self) -> int:
        """Return the bytes that the folder takes on the disk."""
        seen: set[int] = set()
        total = 0
        for _, info in self._walk():
            if info.st_ino not in seen:
                seen.add(info.st_ino)
                total += info.st_blocks * 512
        return total

    def save(self, most: int) -> bytes:
        """Return an archive of the folder.

        Raises:
            InputError: its files exceed `most` bytes, holes in sparse files included.
        """
        stream = io.BytesIO()
        first: dict[int, str] = {}
        total = 0
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, info in self._walk():
                entry = tarfile.TarInfo(path)
                entry.mode = stat.S_IMODE(info.st_mode) & 0o777
                if stat.S_ISDIR(info.st_mode):
                    entry.type = tarfile.DIRTYPE
                    archive.addfile(entry)
                elif stat.S_ISLNK(info.st_mode):
                    target = self._target(path)
                    if target is not None:
                        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
                        archive.addfile(entry)
                elif stat.S_ISREG(info.st_mode):
                    if info.st_ino in first:
                        entry.type, entry.linkname = tarfile.LNKTYPE, first[info.st_ino]
                        archive.addfile(entry)
                        continue
                    total += info.st_size
                    if total > most:
                        raise InputError(
                            f"The work folder cannot be saved: its files hold more than {most:,} "
                            "bytes; remove some, or give the sandbox a larger disk_bytes."
                        )
                    first[info.st_ino] = path
                    data = self.read(path)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        return stream.getvalue()

    def restore(self, saved: bytes) -> None:
        """Replace the contents with those of an archive.

        Raises:
            InputError: it is not an archive made by `save`.
        """
        try:
            with tarfile.open(fileobj=io.BytesIO(saved), mode="r:") as archive:
                entries = [(entry, _content(archive, entry)) for entry in archive]
        except tarfile.TarError as error:
            raise InputError(f"This is no saved work folder: {error}.") from None
        self.empty()
        modes: list[tuple[list[str], int]] = []
        for entry, data in entries:
            parts = inside(entry.name)
            if not parts:
                continue
            with self._opened(parts[:-1], make=True) as folder:
                if entry.isdir():
                    self._folder(folder, parts[-1])
                    modes.append((parts, entry.mode))
                elif entry.issym():
                    if _stays(parts, entry.linkname) is not None:
                        os.symlink(entry.linkname, parts[-1], dir_fd=folder)
                        self._own(folder, parts[-1])
                elif entry.islnk():
                    source = inside(entry.linkname)
                    with self._opened(source[:-1]) as other:
                        os.link(
                            source[-1], parts[-1], src_dir_fd=other, dst_dir_fd=folder,
                            follow_symlinks=False,
                        )  # fmt: skip
                elif entry.isreg():
                    self._put(folder, parts[-1], data, entry.mode)
        for parts, mode in reversed(modes):
            with self._opened(parts) as folder:
                os.fchmod(folder, mode & 0o777)

    def empty(self) -> None:
        """Remove everything, at any depth and with any permissions."""
        if not any(True for _ in os.scandir(self.path)):
            return
        # These programs handle folders deeper than Python can recurse.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for command in (
            ["chmod", "-R", "u+rwX", "--", str(self.path)],
            ["find", f"{self.path}/.", "-mindepth", "1", "-delete"],
        ):
            subprocess.run(command, check=False, **quiet)  # type: ignore[call-overload]

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield everything in the folder, sorted by path; unreadable folders count as empty."""
        waiting: list[list[str]] = [[]]
        found: list[tuple[str, os.stat_result]] = []
        while waiting:
            parts = waiting.pop()
            try:
                with self._opened(parts) as folder:
                    names = os.listdir(folder)
                    for name in names:
                        path = [*parts, name]
                        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        found.append(("/".join(path), info))
                        if stat.S_ISDIR(info.st_mode) and len(path) < DEPTH:
                            waiting.append(path)
            except OSError:
                continue  # a running program has just removed it, or it is not readable
        found.sort(key=lambda entry: entry[0].split("/"))
        yield from found

    @contextmanager
    def _opened(self, parts: list[str], make: bool = False) -> Iterator[int]:
        """Open a folder without following any link; yield its descriptor."""
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                if make:
                    self._folder(at, part)
                below = os.open(part, _FOLDER_FLAGS, dir_fd=at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _folder(self, at: int, name: str) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=at)
        except FileExistsError:
            return
        self._own(at, name)

    def _own(self, at: int, name: str) -> None:
        if self.owner is not None:
            os.chown(name, self.owner, self.owner, dir_fd=at, follow_symlinks=False)

    def _put(self, at: int, name: str, data: bytes, mode: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)  # never through a link that is there
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=at)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode & 0o777)
            if self.owner is not None:
                os.fchown(descriptor, self.owner, self.owner)

    def _read(self, parts: list[str]) -> bytes | list[str]:
        """Return a file's bytes, or the target path if a link is on the way."""
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for depth, part in enumerate(parts):
                info = os.stat(part, dir_fd=at, follow_symlinks=False)
                if stat.S_ISLNK(info.st_mode):
                    led = _stays(parts[: depth + 1], os.readlink(part, dir_fd=at))
                    if led is None:
                        raise PermissionError(errno.EPERM, "a link leads out of it")
                    return led + parts[depth + 1 :]
                if depth + 1 < len(parts):
                    below = os.open(part, _FOLDER_FLAGS, dir_fd=at)
                    os.close(at)
                    at = below
            return _plain(at, parts[-1])
        finally:
            os.close(at)

    def _target(self, path: str) -> str | None:
        """Return a link's target if it stays inside, else None."""
        parts = path.split("/")
        try:
            with self._opened(parts[:-1]) as folder:
                target = os.readlink(parts[-1], dir_fd=folder)
        except OSError:
            return None
        return target if _stays(parts, target) is not None else None


def inside(name: str) -> list[str]:
    """Split a path of the work folder into names; it may start with `/work`.

    Raises:
        InputError: the path leads out of it.
    """
    parts = _resolve([], name) if "\0" not in name else None
    if parts is None:
        raise InputError(f"'{name}' leads out of the work folder; give a path below {WORK}.")
    return parts


def _stays(link: list[str], target: str) -> list[str] | None:
    """Return where a link of the work folder leads; None if out of it."""
    return _resolve(link[:-1], target)


def _resolve(parts: list[str], path: str) -> list[str] | None:
    if path == WORK or path.startswith(f"{WORK}/"):
        parts, path = [], path[len(WORK) :]
    elif path.startswith("/"):
        return None
    parts = list(parts)
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _plain(at: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=at)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is no plain file")
        return file.read()


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry) if entry.isreg() else None
    return stream.read() if stream is not None else b""


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
