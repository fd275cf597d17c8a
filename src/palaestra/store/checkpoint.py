"""A checkpoint: named groups of tensors and a JSON state, whole or absent.

It is a folder: one safetensors file per part, and `state.json`, which holds the
state and the size and hash of every part. It is written under another name and
renamed when complete, so a crash or a full disk leaves the checkpoints as they
were. A tensor under two names (tied weights) is stored once and loaded as one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.paths import set_default_permissions
from palaestra.store.codec import JSON
from palaestra.store.disk import is_full, storage_full, sync, write_durably

if TYPE_CHECKING:
    from torch import Tensor

_LEFTOVER = re.compile(r"\.(tmp|old)-(.+)-(\d+)")  # kind, name of the checkpoint, writer's pid


class CorruptCheckpoint(PalaestraError):
    """A checkpoint's files are missing or were changed after they were written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, loaded."""

    name: str
    tensors: dict[str, dict[str, Tensor]]  # part, tensor's name -> tensor, on the CPU
    state: dict[str, JSON]


def save(
    folder: Path,
    name: str,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, JSON],
) -> Path:
    """Write the checkpoint `name` into `folder`; replace one of the same name.

    When it returns, the data is on disk. When it raises, the checkpoints are unchanged.

    Args:
        folder: created if it does not exist.
        name: a file name that does not start with a dot.
        tensors: part -> name -> dense tensor on any device; each part becomes a file, and is
            read once.
        state: any JSON value; floats are restored bit for bit.

    Returns:
        the checkpoint's folder.

    Raises:
        StorageFull: it does not fit on the disk.
        InputError: `name` or the name of a part cannot be a file name.
    """
    for part in (name, *tensors):
        _check_name(part)
    folder, temporary = Path(folder), Path(folder) / f".tmp-{name}-{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write(temporary, tensors, state)
        _publish(temporary, folder / name)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, Exception) and is_full(error):
            raise storage_full(f"The checkpoint '{name}'", folder, error, _size(tensors)) from error
        raise
    return folder / name


def load(folder: Path, name: str, *, verify: bool = True) -> Checkpoint:
    """Read a checkpoint; with `verify`, check the hash of every file.

    Raises:
        InputError: there is no checkpoint of that name.
        CorruptCheckpoint: a file is missing, truncated or changed.
    """
    manifest = check(folder, name, verify=verify)
    path = Path(folder) / name

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, dict[str, Tensor]] = {}
    for part, about in manifest["parts"].items():
        try:
            loaded = load_file(path / about["file"])
        except SafetensorError as error:
            raise _corrupt(path, f"{about['file']} is not readable ({error})") from error
        tied = {alias: loaded[first] for alias, first in about["ties"].items()}
        tensors[part] = {tensor: (loaded | tied)[tensor] for tensor in about["order"]}
    return Checkpoint(name, tensors, manifest["state"])


def check(folder: Path, name: str, *, verify: bool = True) -> dict[str, Any]:
    """Return a checkpoint's `state.json` after checking its files; raises like `load`."""
    path = Path(folder) / name
    if not path.is_dir():
        known = ", ".join(names(folder)) or "none"
        raise InputError(f"{folder} holds no checkpoint '{name}'; it holds: {known}.")
    manifest = _manifest(path)
    for part in manifest["parts"].values():
        _check_part(path, part, verify)
    return manifest


def latest(folder: Path, *, verify: bool = True) -> Checkpoint | None:
    """Return the latest intact checkpoint; None without one."""
    for name in reversed(names(folder)):
        try:
            return load(folder, name, verify=verify)
        except CorruptCheckpoint:
            continue
    return None


def names(folder: Path) -> list[str]:
    """Return the names of the checkpoints in `folder`, with corrupt ones, by time of writing."""
    if not Path(folder).is_dir():
        return []
    found = [p for p in Path(folder).iterdir() if p.is_dir() and not p.name.startswith(".")]
    return [path.name for path in sorted(found, key=lambda path: (_written(path), path.name))]


def remove(folder: Path, name: str) -> None:
    """Delete a checkpoint if it exists."""
    _check_name(name)
    path, doomed = Path(folder) / name, Path(folder) / f".tmp-{name}-{os.getpid()}"
    if path.is_dir():
        path.rename(doomed)  # atomically, so that no reader sees a part of it
        shutil.rmtree(doomed)


def clean(folder: Path) -> None:
    """Remove the temporary files of writers that died.

    Call it when this process is not saving: its own temporary files are removed as well,
    because a pid can be reused.
    """
    if not Path(folder).is_dir():
        return
    for path in Path(folder).iterdir():
        match = _LEFTOVER.fullmatch(path.name)
        if match is None or _writes(int(match[3])):
            continue
        target = path.with_name(match[2])
        if match[1] == "old" and not target.exists():
            path.rename(target)  # the writer died before the new checkpoint replaced it
        else:
            shutil.rmtree(path)


# ── writing ──────────────────────────────────────────────────────────────────


def _write(
    folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, JSON]
) -> None:
    from safetensors.torch import save_file

    parts: dict[str, JSON] = {}
    for part, group in tensors.items():
        file = folder / f"{part}.safetensors"
        ties = _ties(group)
        save_file(_storable(group, ties), file)
        set_default_permissions(file)  # the library makes it private
        sync(file)
        parts[part] = {
            "file": file.name,
            "bytes": file.stat().st_size,
            "sha256": _hash(file),
            "ties": ties,
            "order": list(group),
        }
        del group  # before the next part is read, if it is made then
    content = {"written": time.time_ns(), "parts": parts, "state": dict(state)}
    write_durably(folder / "state.json", json.dumps({"sha256": _digest(content), **content}))
    sync(folder)


def _ties(group: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the first name of a tensor for each further name of it."""
    first: dict[Any, str] = {}
    ties: dict[str, str] = {}
    for name, tensor in group.items():
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.nbytes and memory in first:
            ties[name] = first[memory]
        else:
            first[memory] = name
    return ties


def _storable(group: Mapping[str, Tensor], ties: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors in the form of safetensors: contiguous, without shared memory."""
    import torch

    stored: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in group.items():
        if name in ties:
            continue
        whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        if not whole or tensor.data_ptr() in taken:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        taken.add(tensor.data_ptr())
        stored[name] = tensor.detach()
    return stored


def _publish(temporary: Path, target: Path) -> None:
    """Rename a complete checkpoint to its final name."""
    old = target.with_name(f".old-{target.name}-{os.getpid()}")
    if target.exists():
        target.rename(old)
    try:
        os.rename(temporary, target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _size(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    size = 0
    for group in tensors.values():
        ties = _ties(group)
        size += sum(tensor.nbytes for name, tensor in group.items() if name not in ties)
    return size


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w+=@-][\w.+=@-]*", name):
        raise InputError(
            f"'{name}' cannot name a checkpoint or a part of one; use letters, digits and ._+=@- "
            "and do not start with a dot."
        )


# ── reading ──────────────────────────────────────────────────────────────────


def _manifest(path: Path) -> dict[str, Any]:
    """Return the content of `state.json`, checked against its own hash."""
    try:
        manifest = json.loads((path / "state.json").read_text(encoding="utf-8"))
        expected = manifest.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _corrupt(path, f"state.json is not readable ({error})") from error
    if _digest(manifest) != expected:
        raise _corrupt(path, "state.json is not what was written")
    content: dict[str, Any] = manifest
    return content


def _check_part(path: Path, part: Mapping[str, Any], verify: bool) -> None:
    file = path / part["file"]
    if not file.is_file():
        raise _corrupt(path, f"{file.name} is missing")
    if file.stat().st_size != part["bytes"]:
        raise _corrupt(
            path, f"{file.name} has {file.stat().st_size} bytes instead of {part['bytes']}"
        )
    if verify and _hash(file) != part["sha256"]:
        raise _corrupt(path, f"{file.name} is not what was written")


def _corrupt(path: Path, reason: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"The checkpoint {path} is corrupt: {reason}. Remove that folder and continue from an "
        "earlier checkpoint."
    )


def _written(path: Path) -> int:
    try:
        return int(_manifest(path)["written"])
    except CorruptCheckpoint:
        return 0


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(content: Mapping[str, JSON]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _writes(pid: int) -> bool:
    """Return whether another running process has that pid."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
