"""What of this machine may be seen inside: mounts, looked at before anything is started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from palaestra.core.errors import InputError
from palaestra.safety.sandbox import WORK, Mount

TAKEN = ("/", "/proc", "/dev", "/sys", "/run", "/etc", "/tmp", WORK)
BELOW = ("/proc", "/dev", "/sys", "/run", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")


def checked(mounts: Sequence[Mount], foreign: bool) -> tuple[Mount, ...]:
    """The same mounts, with their outer paths made absolute.

    Args:
        mounts: as they were asked for.
        foreign: programs run as another user than we do.

    Raises:
        InputError: one of them cannot be.
    """
    return tuple(_checked(mount, foreign) for mount in mounts)


def python_mounts() -> tuple[Mount, ...]:
    """The Python that runs us, with its packages: inside, `sys.executable` runs it too."""
    folders = [Path(folder) for folder in dict.fromkeys((sys.base_prefix, sys.prefix))]
    return tuple(
        Mount(folder, str(folder)) for folder in folders if not folder.is_relative_to("/usr")
    )


def _checked(mount: Mount, foreign: bool) -> Mount:
    if not mount.outside.exists():
        raise InputError(f"{mount.outside} cannot be mounted: there is no such file or folder.")
    inside = PurePosixPath(mount.inside)
    lost = not inside.is_absolute() or ".." in inside.parts or "\0" in mount.inside
    if lost or str(inside) in TAKEN or any(inside.is_relative_to(place) for place in BELOW):
        raise InputError(
            f"{mount.outside} cannot be mounted at '{mount.inside}': that is no free place; "
            "choose an absolute one such as '/data'."
        )
    if mount.writable and foreign and not mount.outside.stat().st_mode & 0o002:
        raise InputError(
            f"{mount.outside} cannot be mounted for writing: programs of a sandbox that root "
            "makes run as nobody else's user; let all write to it (chmod a+w)."
        )
    return Mount(mount.outside.resolve(), str(inside), mount.writable)
