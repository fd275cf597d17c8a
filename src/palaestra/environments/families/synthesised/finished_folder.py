"""What `palaestra synthesise` made, as the tasks of environments: `FAMILY/FOLDER` and splits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, TaskSet

STATE = "synthesis.json"
LAST = "rows"  # the stage after all others
TASK = "task"  # the parameter with the number of a task
FOLDERS = 8  # that are remembered

Made = dict[str, list[Any]]
"""The lines of each stage that is finished, by its name."""


def name_parts(name: str, forms: Collection[str]) -> tuple[str, str]:
    """Return the folder and the form that the name of an environment says, such as `a/b:all`."""
    path, colon, form = name.rpartition(":")
    return (path, form) if colon and form in forms else (name, "")


def folder_of(environment: str, forms: Collection[str]) -> str:
    """Return the folder of an environment's full id; empty for the family itself."""
    return name_parts(re.split("[?@]", environment)[0].partition("/")[2], forms)[0]


def state_of(path: str) -> str:
    """Return what a folder says of its files: what was read holds as long as this stays."""
    file = Path(path) / STATE
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def made_in(path: str) -> tuple[Mapping[str, Any], Made]:
    """Return the settings and lines of a folder; raises InputError as `finished_stages` does."""
    return _read(path, state_of(path))


@lru_cache(maxsize=FOLDERS)
def _read(path: str, _: str) -> tuple[Mapping[str, Any], Made]:
    return finished_stages(Path(path))


def listed(environment: str, splits: Mapping[Split, list[int]]) -> TaskSet:
    """Return the task set of an environment; each task names its number."""
    rows = {split: [{TASK: number} for number in found] for split, found in splits.items()}
    return ListedTasks(environment, rows=rows)


def digest(content: bytes) -> str:
    """Return what a folder notes of each of its files."""
    return hashlib.sha256(content).hexdigest()


def finished_stages(path: Path) -> tuple[Mapping[str, Any], Made]:
    """Return the settings of a folder whose stages are all finished, and the lines of each stage.

    Raises:
        InputError: it holds no synthesis, one that is not finished, or a file was changed since.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        settings, finished = dict(state["settings"]), dict(state["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{path} holds no synthesis; name the folder of `palaestra synthesise … --to FOLDER`."
        ) from None
    if LAST not in finished:
        raise InputError(
            f"The synthesis in {path} is not finished; give the command that began it once more."
        )
    return settings, {stage: _lines(path, stage, noted) for stage, noted in finished.items()}


def _lines(path: Path, stage: str, noted: str) -> list[Any]:
    file = path / f"{stage}.jsonl"
    content = file.read_bytes() if file.is_file() else b""
    if digest(content) != noted:
        raise InputError(
            f"{file} was changed since the stage '{stage}' was finished; restore it, or make the "
            "data in a new folder."
        )
    return [json.loads(line) for line in content.splitlines()]
