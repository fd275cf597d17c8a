"""A work folder as its archive tells it: what graders look at, outside of what acts in it."""

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
    link: str | None = None  # where it points to


Folder = Mapping[str, Entry]
"""Path within the work folder to what is there; folders are not listed."""


def listed(archive: bytes) -> dict[str, Entry]:
    """What a sandbox saved; hard links appear as files of their own."""
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
    """What a file says, without blanks at its end; nothing where there is no such file."""
    entry = folder.get(path)
    return entry.data.decode(errors="replace").rstrip() if entry else ""


def lines(folder: Folder, path: str) -> list[str]:
    """The lines of a file, without blanks around them."""
    return [line.strip() for line in text(folder, path).splitlines()]


def rebuilt(path: str, entry: Entry) -> str:
    """A shell command that puts a file back as it was."""
    where = shlex.quote(path)
    parent = shlex.quote(path.rpartition("/")[0] or ".")
    if entry.link is not None:
        return f"mkdir -p {parent} && ln -sfn {shlex.quote(entry.link)} {where}"
    plain = set(range(32, 127)) - set(b"%\\")  # what printf writes as it stands
    said = "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in entry.data)
    make = f"printf -- {shlex.quote(said)} > {where}"
    return f"mkdir -p {parent} && rm -rf {where} && {make} && chmod {entry.mode:o} {where}"
