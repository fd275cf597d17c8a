"""Paths on this machine: the cache folder, the permissions of files, and modules by name."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType


def cache_folder() -> Path:
    """Return the cache folder; it may not exist yet.

    `PALAESTRA_CACHE` is its path if set; otherwise it is `palaestra` within `XDG_CACHE_HOME`,
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


def set_default_permissions(file: Path) -> None:
    """Give a file the permissions of new files in its folder (see umask).

    For files that a library made private to their owner.
    """
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        fresh.touch(exist_ok=False)
        shutil.copymode(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)


def import_named(name: str) -> ModuleType:
    """Import a module, such as that of `module:Class`, from the current directory if need be.

    The `palaestra` script, unlike `python -m`, does not search the current directory by itself. If
    the module is found there, the directory stays on the path, for worker processes as well.

    Raises:
        ImportError: the module does not exist or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        here = os.getcwd()
        if here in sys.path:
            raise
        sys.path.append(here)  # last, so that nothing installed is hidden
        try:
            return importlib.import_module(name)
        except ImportError:
            sys.path.remove(here)
            raise


def is_missing(name: str, error: ImportError) -> bool:
    """Return whether the module of that name is missing itself, not one that it imports."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
