"""What walled sandboxes need to know of the Linux that they are put up on."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

USERS = range(1_900_000_000, 2_100_000_000)
"""Numbers that no system gives to anybody; see systemd's list of user numbers."""
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CAPABILITIES = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_ADMIN": 21}


def system_folders() -> list[Path]:
    """Folders beside `/usr` that programs of the system need; today most are links into it."""
    return [Path("/", name) for name in _FOLDERS if Path("/", name).is_dir()]


@lru_cache(maxsize=1)
def privileged() -> bool:
    """Whether we may mount and change users without a namespace of our own."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    return all(effective >> number & 1 for number in _CAPABILITIES.values())
