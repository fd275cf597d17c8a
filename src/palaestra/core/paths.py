"""Files on this machine: where palaestra keeps what it can rebuild, and who may read a file."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder; it may not exist yet.

    `PALAESTRA_CACHE` names it outright; else it is `palaestra` within `XDG_CACHE_HOME`,
    within `~/Library/Caches` on macOS, or within `~/.cache`.
    """
    own = os.environ.get("PALAESTRA_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared).expanduser().absolute() / "palaestra"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "palaestra"
    return Path.home() / ".cache" / "palaestra"


def open_as_new(file: Path) -> None:
    """Let a file be read by whoever may read new ones in its folder (see umask).

    For files that a library made private to their owner.
    """
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        fresh.touch(exist_ok=False)
        shutil.copymode(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
