"""A work folder read from its archive: graders inspect it outside the sandbox."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file, or a symbolic link."""

    data: bytes  # empty for a link
    mode: int  # permission bits, such as 0o644
    link: str | None = None  # the target of the link


Folder = Mapping[str, Entry]
"""Maps a path within the work folder to its entry; folders are not listed."""


def read_archive(archive: bytes) -> dict[str, Entry]:
    """Return the entries of a sandbox's archive; hard links appear as separate files."""
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = member.name.removeprefix("./")
            if member.issym():
                found[path] = Entry(b"", member.mode & 0o777, member.linkname)
            elif member.isfile():
                part = tar.extractfile(member)
                found[path] = Entry(part.read() if part else b"", member.mode & 0o777)
            elif member.islnk():
                first = member.linkname.removeprefix("./")
                found[path] = found.get(first, Entry(b"", member.mode & 0o777))
    return found


def text(folder: Folder, path: str) -> str:
    """Return a file's text without trailing whitespace; "" if there is no such file."""
    entry = folder.get(path)
    return entry.data.decode(errors="replace").rstrip() if entry else ""


def lines(folder: Folder, path: str) -> list[str]:
    """Return the lines of a file, each stripped of whitespace."""
    return [line.strip() for line in text(folder, path).splitlines()]


def restore_command(path: str, entry: Entry) -> str:
    """Return a shell command that restores a file."""
    where = shlex.quote(path)
    parent = shlex.quote(path.rpartition("/")[0] or ".")
    if entry.link is not None:
        return f"mkdir -p {parent} && ln -sfn {shlex.quote(entry.link)} {where}"
    plain = set(range(32, 127)) - set(b"%\\")  # characters that printf writes unchanged
    escaped = "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in entry.data)
    make = f"printf -- {shlex.quote(escaped)} > {where}"
    return f"mkdir -p {parent} && rm -rf {where} && {make} && chmod {entry.mode:o} {where}"
