"""Where palaestra keeps what it can rebuild: one cache folder per user."""

from __future__ import annotations

import os
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
