"""The run in which a person's plays are recorded, one episode each, as those of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.task import Split

if TYPE_CHECKING:
    from palaestra.core.task import Task
    from palaestra.store.run_folder import RunFolder

RECIPE = {"command": "play", "summary": "tasks done by persons"}


@contextmanager
def played_run(folder: Path) -> Iterator[RunFolder]:
    """Open a run of earlier plays, or make a new one.

    Raises:
        InputError: the run is of something else.
    """
    from palaestra.store.run_folder import RunFolder

    known = (folder / "run.json").is_file()
    with RunFolder.open(folder) if known else RunFolder.create(folder, RECIPE) as opened:
        if opened.database.get("recipe") != RECIPE:
            raise InputError(f"{folder} is no run of earlier plays; give another folder to --run.")
        yield opened


def key_of(opened: RunFolder, task: Task) -> Key:
    """Return the key of a task's next play: its number in the split, and which attempt it is."""
    phase = f"play/{task.split}/{task.environment}"
    group = task.seed // len(Split)
    keys = [summary.key for summary in opened.database.summaries(phase)]
    return Key(phase, group, sum((key.phase, key.group) == (phase, group) for key in keys))
