"""GGUF files as models: each is converted once into the cache, and found there by its SHA-256."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from palaestra.core.errors import InputError, MissingPackage, PalaestraError
from palaestra.core.paths import cache_folder
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.model_cache import Progress, cached

INVALID = 2  # exit status of the conversion: the file is at fault


def is_gguf(name: str) -> bool:
    """Return whether a name is that of a GGUF file."""
    return name.lower().endswith(".gguf")


def check_gguf(name: str) -> Path:
    """Return the path of a GGUF file; raise InputError if there is none."""
    file = Path(name).expanduser()
    if not file.is_file():
        raise InputError(f"There is no GGUF file '{name}'; check the path.")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(f"The file '{name}' is no GGUF file; download it again.")
    return file


def folder_of(file: Path) -> Path:
    """Return where the converted checkpoint of a GGUF file is stored; it may not exist yet."""
    return cache_folder() / "models" / f"{file.stem}-{sha256(file)[:12]}"


def converted(file: Path, progress: Progress) -> Path:
    """Return the checkpoint of a GGUF file, converted unless the cache has it.

    Raises:
        InputError: the file is damaged, or has a trait that is not known.
        CorruptCache: cached files are damaged and cannot be rebuilt.
        StorageFull: the disk is full.
    """

    def build(target: Path) -> None:
        need_packages(file.name)
        progress(f"converting {file.name} (once, some seconds per 100 MB)…")
        run_conversion(file, target)
        progress(f"{file.name} is converted and cached")

    return cached(folder_of(file), build, progress)


def need_packages(model: str) -> None:
    """Raise MissingPackage if a package that the conversion needs is not installed."""
    for package in ("torch", "transformers", "gguf"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(
                f"Converting the model '{model}' needs the Python package '{package}', which is "
                f"not installed; install it with: pip install {package}"
            )


def run_conversion(source: Path, target: Path) -> None:
    """Convert a GGUF file in a process of its own (see `gguf_conversion`); raise as `converted`."""
    library = str(Path(__file__).resolve().parents[3])
    paths = [library, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "palaestra.models.local.gguf_conversion", str(source), str(target)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode == 0:
        return
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    if done.returncode == INVALID:
        raise InputError(reason)
    raise PalaestraError(
        f"Converting {source.name} into a Hugging Face checkpoint failed ({reason}); "
        f"check that torch, transformers and gguf are installed in compatible versions."
    )
