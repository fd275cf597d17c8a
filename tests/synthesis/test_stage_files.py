"""A kill changes nothing: a stage's files are the same to the byte, and none is changed unseen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.store.codec import JSON
from palaestra.synthesis.stage_files import Made, Stage, StageFolder
from tests.synthesis.made import COUNTY, contents, made


class Killed(BaseException):
    """Stands for the end of the process."""


class Kill:
    """Ends the process at the n-th time that something is waited for to be on disk."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, descriptor: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def numbers(size: int) -> list[Stage]:
    """Two stages: numbers, and sums of neighbours; some items have no lines, others several."""

    async def number(made: Made, at: int) -> Sequence[JSON]:
        return [{"n": at, "text": "ä\n"}] * (at % 3)

    async def total(made: Made, at: int) -> Sequence[JSON]:
        return [sum(line["n"] for line in made["numbers"][: at + 1])]

    return [
        Stage("numbers", (), lambda made: size, number),
        Stage("sums", ("numbers",), lambda made: len(made["numbers"]), total),
    ]


def run(folder: Path, size: int = 6) -> Made:
    return asyncio.run(StageFolder(folder, {"size": size}).run(numbers(size), lambda said: None))


@given(kills=st.lists(st.integers(0, 12), max_size=4), torn=st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_any_kills_leave_the_same_bytes(kills: list[int], torn: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        whole, cut = Path(name) / "whole", Path(name) / "cut"
        patch.setattr(os, "fsync", Kill(1000))  # waiting for a disk takes most of the time
        run(whole)
        for after in kills:
            patch.setattr(os, "fsync", Kill(after))
            try:
                run(cut)
            except Killed:
                for journal in cut.glob(".*.journal"):  # the last bytes never reached the disk
                    content = journal.read_bytes()
                    last = content.rfind(b"\n", 0, max(0, len(content) - 1)) + 1
                    os.truncate(journal, max(last, len(content) - torn))
        patch.setattr(os, "fsync", Kill(1000))
        run(cut)
        assert contents(cut) == contents(whole)


@pytest.mark.parametrize("after", [4, 21])
def test_a_killed_synthesis_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(os, "fsync", Kill(1000))
    small = COUNTY.model_copy(update={"tasks": 2})
    made(tmp_path / "whole", small)
    monkeypatch.setattr(os, "fsync", Kill(after))
    with pytest.raises(Killed):
        made(tmp_path / "cut", small)
    monkeypatch.setattr(os, "fsync", Kill(1000))
    made(tmp_path / "cut", small)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_finished_synthesis_makes_nothing_again(tmp_path: Path) -> None:
    run(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.jsonl")}
    run(tmp_path)
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.jsonl")} == before


@pytest.mark.parametrize("stage", ["numbers", "sums"])
def test_a_file_that_was_changed_or_removed_is_refused(tmp_path: Path, stage: str) -> None:
    run(tmp_path)
    file = tmp_path / f"{stage}.jsonl"
    file.write_text(file.read_text().replace("1", "3"))
    with pytest.raises(InputError, match=rf"{stage}.jsonl was changed since the stage"):
        run(tmp_path)
    file.unlink()
    with pytest.raises(InputError, match=rf"{stage}.jsonl is missing since the stage"):
        run(tmp_path)


def test_a_journal_that_was_changed_is_refused(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", Kill(6))
        with pytest.raises(Killed):
            run(tmp_path)
    journal = tmp_path / ".numbers.journal"
    first, *rest = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*rest, first]))
    with pytest.raises(InputError, match="line 1 was changed by hand; delete the file"):
        run(tmp_path)


def test_other_settings_and_other_folders_are_refused(tmp_path: Path) -> None:
    run(tmp_path / "made")
    with pytest.raises(InputError, match="was made with another 'size'"):
        run(tmp_path / "made", size=7)
    with pytest.raises(InputError, match="holds no synthesis; name a new folder"):
        run(tmp_path)


@pytest.mark.slow
def test_a_process_that_is_really_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    domain = tmp_path / "county.toml"
    domain.write_text(
        f'name = "county"\nabout = "{COUNTY.about}"\nseed = 7\nworlds = 3\ntasks = 40\n'
    )
    command = [sys.executable, "-m", "palaestra", "synthesise", str(domain), "--to"]
    cut, kills, known = tmp_path / "cut", 0, -1
    while True:
        process = subprocess.Popen([*command, str(cut)], stdout=subprocess.DEVNULL)
        while process.poll() is None:  # killed as soon as some more is on disk
            size = (
                sum(file.stat().st_size for file in cut.glob(".*.journal")) if cut.exists() else 0
            )
            if kills < 4 and size > known + 3000:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.005)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
        known = sum(file.stat().st_size for file in cut.glob(".*.journal"))
    subprocess.run([*command, str(tmp_path / "whole")], check=True, stdout=subprocess.DEVNULL)
    assert kills >= 3
    assert contents(cut) == contents(tmp_path / "whole")
