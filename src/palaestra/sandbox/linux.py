"""Linux: system folders, privileges and user ids, as isolating sandboxes need them."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

USERS = range(1_900_000_000, 2_100_000_000)
"""User ids that no system assigns; see systemd's list of user ids."""
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CAPABILITIES = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_ADMIN": 21}


def system_folders() -> list[Path]:
    """Return folders beside `/usr` that system programs need; most are links into it today."""
    return [Path("/", name) for name in _FOLDERS if Path("/", name).is_dir()]


@lru_cache(maxsize=1)
def privileged() -> bool:
    """Return whether this process may mount and change users without a user namespace."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    return all(effective >> number & 1 for number in _CAPABILITIES.values())
