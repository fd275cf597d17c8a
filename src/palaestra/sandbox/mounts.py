"""Mounts: files and folders of this machine visible inside, checked before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from palaestra.core.errors import InputError
from palaestra.sandbox.base import WORK, Mount

TAKEN = ("/", "/proc", "/dev", "/sys", "/run", "/etc", "/tmp", WORK)
BELOW = ("/proc", "/dev", "/sys", "/run", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")


def checked(mounts: Sequence[Mount], foreign: bool) -> tuple[Mount, ...]:
    """Check the mounts and make their outer paths absolute.

    Args:
        mounts: as requested.
        foreign: whether programs run as another user than this process.

    Raises:
        InputError: a mount is not possible.
    """
    return tuple(_checked(mount, foreign) for mount in mounts)


def python_mounts() -> tuple[Mount, ...]:
    """Return mounts of the running Python and its packages: `sys.executable` works inside."""
    folders = [Path(folder) for folder in dict.fromkeys((sys.base_prefix, sys.prefix))]
    return tuple(
        Mount(folder, str(folder)) for folder in folders if not folder.is_relative_to("/usr")
    )


def _checked(mount: Mount, foreign: bool) -> Mount:
    if not mount.outside.exists():
        raise InputError(
            f"{mount.outside} cannot be mounted, because it does not exist; give an existing file "
            "or folder."
        )
    inside = PurePosixPath(mount.inside)
    lost = not inside.is_absolute() or ".." in inside.parts or "\0" in mount.inside
    if lost or str(inside) in TAKEN or any(inside.is_relative_to(place) for place in BELOW):
        raise InputError(
            f"{mount.outside} cannot be mounted at '{mount.inside}', because that path is reserved "
            "or relative; choose an absolute path such as '/data'."
        )
    if mount.writable and foreign and not mount.outside.stat().st_mode & 0o002:
        raise InputError(
            f"{mount.outside} cannot be mounted for writing, because the programs of root's "
            "sandboxes run as a user of their own; make it writable for all (chmod a+w)."
        )
    return Mount(mount.outside.resolve(), str(inside), mount.writable)
