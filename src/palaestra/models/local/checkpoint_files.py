"""The files of a checkpoint: weights in one file or in shards, mapped, never held twice.

A tensor is mapped into memory when it is read, and given back when the caller drops it: what is
used as it is stored takes no memory of its own, and what is converted or joined is held once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "model.safetensors.index.json"
TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")


class StoredTensors(Mapping[str, "Tensor"]):
    """The tensors of a checkpoint folder by name; each access maps the tensor anew."""

    def __init__(self, folder: Path) -> None:
        """Find the tensors, and check that every file is whole.

        Raises:
            InputError: a file or a tensor is missing, or a file is truncated or damaged.
        """
        self._folder = folder
        self._files: dict[str, Path] = {}
        for file, names in _files(folder).items():
            found = _names(file)
            missing = sorted(names - found)
            if missing:
                raise InputError(
                    f"The file '{file}' lacks the tensor '{missing[0]}' that {INDEX} expects in "
                    "it; download or save the checkpoint again."
                )
            self._files |= dict.fromkeys(found, file)

    def __getitem__(self, name: str) -> Tensor:
        from safetensors import safe_open

        if name not in self._files:
            raise InputError(
                f"The checkpoint '{self._folder}' lacks the tensor '{name}'; download or save it "
                "again."
            )
        # Opened for each tensor: a file that stays open keeps every page that was read from it.
        with safe_open(self._files[name], "pt") as file:
            return file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def number_formats(self) -> set[str]:
        """The number formats of the tensors, as safetensors names them, such as BF16."""
        from safetensors import safe_open

        found = set()
        for path in set(self._files.values()):
            with safe_open(path, "np") as file:
                names = file.keys()
                found |= {str(file.get_slice(name).get_dtype()) for name in names}
        return found


def sees(folder: Path) -> bool:
    """Return whether a checkpoint has a vision tower, by its `config.json`."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # what reads it says what is wrong with it
    return isinstance(data, dict) and isinstance(data.get("vision_config"), dict)


def check_tokenizer(folder: Path, name: str) -> None:
    """Check that a checkpoint has a tokenizer and a chat template.

    Raises:
        InputError: one is missing; `name` names the checkpoint.
    """
    from palaestra.models.renderers.chatml import START

    vocabulary = folder / "tokenizer.json"
    if not any(
        (folder / file).is_file() for file in (vocabulary.name, "tokenizer.model", "vocab.json")
    ):
        raise InputError(
            f"The model '{name}' has no tokenizer (tokenizer.json); save it there with "
            "save_pretrained."
        )
    if vocabulary.is_file() and START.encode() in vocabulary.read_bytes():
        return  # it speaks ChatML
    config = folder / "tokenizer_config.json"
    if config.is_file() and '"chat_template"' in config.read_text("utf-8", errors="replace"):
        return
    if not any((folder / file).exists() for file in TEMPLATES):
        raise InputError(
            f"The tokenizer of '{name}' has no chat template; use an instruction-tuned model, or "
            f"name a file with one: {name}?template=FILE.jinja."
        )


def _files(folder: Path) -> dict[Path, set[str]]:
    """Return the files of a checkpoint, each with the tensors that the index expects in it."""
    index = folder / INDEX
    if not index.is_file():
        whole = folder / "model.safetensors"
        found = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))
        return {file: set() for file in found}
    try:
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files: dict[Path, set[str]] = {}
        for name, file in placed.items():
            files.setdefault(folder / Path(file).name, set()).add(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"The file '{index}' is damaged ({error}); download or save the checkpoint again."
        ) from error
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"The checkpoint '{folder}' lacks {missing[0]}, one of its {len(files)} shards; "
            "download or save it again."
        )
    return files


def _names(file: Path) -> set[str]:
    """Return the names of a file's tensors, after checking that it is whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as opened:
            return set(opened.keys())
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"The file '{file}' is truncated or damaged ({error}); download or save it again."
        ) from error
