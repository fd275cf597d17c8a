"""Stages whose outputs are files, and which a kill does not change.

A stage reads what earlier stages made, and makes items one after another; an item is some lines of
JSON. Each finished item is written to a journal, `.NAME.journal`, and waited for until it is on
disk. After the last one the stage's file, `NAME.jsonl`, is written atomically, and its SHA-256 is
noted in `synthesis.json`. So a stage that was interrupted goes on with its next item, and since an
item depends on nothing but its number, the settings and the files before it, the result is the same
to the byte. A file that was changed later is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from palaestra.core.errors import InputError
from palaestra.environments.families.synthesised.finished_folder import STATE, Made, digest
from palaestra.store.codec import JSON
from palaestra.store.disk import replace_durably, replacing_file
from palaestra.store.lock import RunLock

VERSION = 1  # rises when equal settings may give other files
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step from files to a file."""

    name: str
    reads: tuple[str, ...]  # earlier stages
    count: Callable[[Made], int]  # the number of items
    make: Callable[[Made, int], Awaitable[Sequence[JSON]]]  # the lines of an item


class StageFolder:
    """The folder with the files of stages."""

    def __init__(self, path: Path, settings: Mapping[str, JSON]) -> None:
        """Begin in a new folder, or go on in one with equal settings.

        Raises:
            InputError: other files are in the folder, or it was made with other settings.
        """
        self.path = path
        self.settings = {"version": VERSION, **settings}
        self._finished: dict[str, str] = {}  # SHA-256 of each file
        file = path / STATE
        if not file.exists():
            if path.exists() and (not path.is_dir() or any(set(path.iterdir()) - {path / LOCK})):
                raise InputError(f"{path} is not empty, and holds no synthesis; name a new folder.")
            return
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            before, self._finished = dict(found["settings"]), dict(found["finished"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} cannot be read ({error}); name a new folder.") from None
        for key in sorted(before.keys() | self.settings.keys()):
            if before.get(key) != self.settings.get(key):
                raise InputError(
                    f"{path} was made with another '{key}'; name a new folder, or set it back."
                )

    async def run(self, stages: Sequence[Stage], say: Callable[[str], None]) -> Made:
        """Run the stages that are not finished; return the lines of all.

        Args:
            stages: each after those that it reads.
            say: receives a sentence when a stage is finished.

        Raises:
            InputError: a file was changed since its stage was finished, or a stage cannot be done.
            RunLocked: another process works in the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._note()
            made: Made = {}
            for stage in stages:
                inputs = {name: made[name] for name in stage.reads}
                if stage.name not in self._finished:
                    await self._finish(stage, inputs)
                    say(f"{stage.name}: finished")
                made[stage.name] = self._lines(stage.name)
                self._journal(stage.name).unlink(missing_ok=True)
            return made

    # ── details ──────────────────────────────────────────────────────────────

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = RunLock(self.path / LOCK)
        try:
            for left in self.path.glob(".*.json*-*"):  # half-written files of a killed process
                left.unlink()
            yield
        finally:
            lock.release()

    def _file(self, stage: str) -> Path:
        return self.path / f"{stage}.jsonl"

    def _journal(self, stage: str) -> Path:
        return self.path / f".{stage}.journal"

    def _note(self) -> None:
        state = {"settings": self.settings, "finished": self._finished}
        replace_durably(self.path / STATE, json.dumps(state, indent=2) + "\n")

    async def _finish(self, stage: Stage, inputs: Made) -> None:
        """Make the items that the journal lacks, and write the stage's file."""
        items, kept = self._journalled(stage.name)
        with self._journal(stage.name).open("r+b" if kept else "wb") as journal:
            journal.truncate(kept)  # what a kill left of a half-written item
            journal.seek(kept)
            for number in range(len(items), stage.count(inputs)):
                items.append(list(await stage.make(inputs, number)))
                _append(journal, {"item": number, "lines": items[-1]})
        with replacing_file(self._file(stage.name)) as fresh, fresh.open("wb") as stream:
            for lines in items:
                stream.writelines(_line(line) for line in lines)
        self._finished[stage.name] = digest(self._file(stage.name).read_bytes())
        self._note()

    def _journalled(self, stage: str) -> tuple[list[list[Any]], int]:
        """Return the items of the journal, and how many of its bytes are whole items.

        Raises:
            InputError: a line before the last is no item.
        """
        file = self._journal(stage)
        content = file.read_bytes() if file.exists() else b""
        items: list[list[Any]] = []
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                item = json.loads(line)
                known = item["item"] == number - 1 and isinstance(item["lines"], list)
            except (ValueError, KeyError, TypeError):
                known = False
            if not known:
                raise InputError(
                    f"{file}, line {number} was changed by hand; delete the file, and the stage "
                    "begins anew."
                )
            items.append(item["lines"])
        return items, len(whole)

    def _lines(self, stage: str) -> list[Any]:
        """Return the lines of a finished stage.

        Raises:
            InputError: its file is not as it was.
        """
        file = self._file(stage)
        content = file.read_bytes() if file.exists() else b""
        if not file.exists() or digest(content) != self._finished[stage]:
            what = "was changed" if file.exists() else "is missing"
            raise InputError(
                f"{file} {what} since the stage '{stage}' was finished, and later stages would no "
                "longer follow from it; restore it, or name a new folder."
            )
        return [json.loads(line) for line in content.splitlines()]


def _line(document: JSON) -> bytes:
    return json.dumps(document, ensure_ascii=True).encode() + b"\n"


def _append(journal: IO[bytes], document: JSON) -> None:
    """Write a line, and wait until it is on disk."""
    journal.write(_line(document))
    journal.flush()
    os.fsync(journal.fileno())
