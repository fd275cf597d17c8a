"""Weights on disk: a model's name becomes a folder with a plain Hugging Face checkpoint.

A name is one of `MODELS`, the path of a checkpoint folder or of a GGUF file, or an id of the
Hugging Face hub (see `hub`); a folder that exists goes before the hub. Each may be followed by
options (see `name_options`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from palaestra.core.errors import InputError, UnknownName
from palaestra.models.local import hub
from palaestra.models.local.adapter_config import AdapterConfig, identity
from palaestra.models.local.checkpoint_files import StoredTensors, check_tokenizer
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.gguf_models import check_gguf, converted, folder_of, is_gguf
from palaestra.models.local.hub import HubName
from palaestra.models.local.model_cache import Progress
from palaestra.models.local.name_options import NamedCheckpoint
from palaestra.models.local.named_models import MODELS
from palaestra.models.local.own_template import with_template
from palaestra.models.local.quantisation import Quantisation
from palaestra.models.local.routed_files import AGENT, RoutedFiles, is_routed


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is ready to be read."""

    folder: Path  # config, safetensors, tokenizer, chat template
    revision: str | None
    """The commit on the hub, or the SHA-256 of the file; a folder has none. With an adapter, that
    and a hash of the adapter, joined by a plus sign."""
    adapter: Path | None = None  # a folder with a LoRA adapter, see `adapter_config`
    quantise: Quantisation | None = None  # see `quantised`
    routed: RoutedFiles | None = None  # of a policy with a router, whose base `folder` is


def prepare(name: str, progress: Progress) -> Path:
    """Return the folder of a model's checkpoint; raise like `obtain`."""
    return obtain(name, progress).folder


def obtain(name: str, progress: Progress, revision: str | None = None) -> Checkpoint:
    """Find, download or convert a model's checkpoint, and check its files.

    Args:
        name: see the top of this module.
        progress: called with one sentence whenever something takes time or was repaired.
        revision: the one that a run recorded, to be used again.

    Raises:
        UnknownName: the name is of no known form.
        InputError: there is no such model, it cannot be had or used, its files are damaged, or they
            are no longer those of `revision`.
        MissingPackage: the package that carries the model is not installed.
        CorruptCache: cached files are damaged and cannot be rebuilt.
        StorageFull: the disk is full.
    """
    check_name(name)
    asked = NamedCheckpoint.parse(name)
    base = asked.base
    found = _obtain(base, progress, (revision or "").partition("+")[0] or None)
    if asked.adapter is not None:
        AdapterConfig.read(asked.adapter)
        both = f"{found.revision or ''}+{identity(asked.adapter)[:12]}"
        found = replace(found, revision=both, adapter=asked.adapter)
    if revision is not None and found.revision != revision:
        raise InputError(
            f"The model '{base}' is no longer the one that the run began with (revision "
            f"{revision[:12]}); bring that back, or start a new run."
        )
    if asked.quantise is not None:
        found = replace(found, quantise=asked.quantise)
    if asked.template is not None:
        found = replace(found, folder=with_template(found.folder, asked.template))
    if base not in MODELS:
        StoredTensors(found.folder)
        check_tokenizer(found.folder, name)
    return found


def check_name(name: str) -> None:
    """Raise what `obtain` would raise for the name alone; load, download and convert nothing.

    Raises:
        UnknownName: the name is of no known form.
        InputError: the folder is no checkpoint, or the file no GGUF file.
    """
    asked = NamedCheckpoint.parse(name)
    if asked.adapter is not None:
        AdapterConfig.read(asked.adapter)
    base = asked.base
    if base in MODELS:
        return
    folder = Path(base).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        if is_routed(folder):
            _check_routed(name, asked, RoutedFiles.read(folder))
    elif is_gguf(base):
        check_gguf(base)
    elif HubName.parse(base) is None:
        if "/" not in base and not base.startswith(("~", ".")):
            raise UnknownName("model", base, MODELS)
        raise InputError(
            f"'{base}' is no model folder; give the path of a Hugging Face checkpoint or of a GGUF "
            f"file, an id of the hub (OWNER/NAME), or one of: {', '.join(sorted(MODELS))}."
        )


def ready(name: str) -> Path | None:
    """Return the folder of an already prepared checkpoint, unverified; None without one.

    Raises like `check_name`.
    """
    check_name(name)
    base = NamedCheckpoint.parse(name).base
    path = Path(base).expanduser()
    folder: Path | None
    if base in MODELS:
        folder = MODELS[base].folder
    elif path.is_dir():
        folder = path
    elif is_gguf(base):
        folder = folder_of(path)
    else:
        named = HubName.parse(base)
        assert named is not None  # see `check_name`
        folder = hub.cached(named)
    return folder if folder is not None and (folder / "config.json").is_file() else None


def _obtain(base: str, progress: Progress, revision: str | None) -> Checkpoint:
    if base in MODELS:
        return Checkpoint(MODELS[base].converted(progress), MODELS[base].sha256)
    path = Path(base).expanduser()
    if path.is_dir() and is_routed(path):
        files = RoutedFiles.read(path)
        return Checkpoint(files.base, None, files.adapters[AGENT], routed=files)
    if path.is_dir():
        return Checkpoint(path, None)
    if is_gguf(base):
        return Checkpoint(converted(path, progress), sha256(path))
    named = HubName.parse(base)
    assert named is not None  # see `check_name`
    folder = hub.downloaded(replace(named, revision=revision or named.revision), progress)
    return Checkpoint(folder, folder.name)


def _check_routed(name: str, asked: NamedCheckpoint, files: RoutedFiles) -> None:
    """Raise InputError for an adapter that is asked for, or one that is missing."""
    if asked.adapter is not None:
        raise InputError(
            f"'{name}' names an adapter, and '{files.folder}' has a router over its own; leave out "
            f"adapter, or name its base: '{files.base}'."
        )
    _check_folder(files.base)
    for folder in files.adapters.values():
        if folder is not None:
            AdapterConfig.read(folder)


def _check_folder(folder: Path) -> None:
    missing = [
        pattern for pattern in ("config.json", "*.safetensors") if not any(folder.glob(pattern))
    ]
    if missing:
        raise InputError(
            f"The folder '{folder}' is no Hugging Face checkpoint: {' and '.join(missing)} "
            "is missing; save the model there with save_pretrained."
        )
