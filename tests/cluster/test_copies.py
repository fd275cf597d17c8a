"""Copies of the record in plain processes that are killed, frozen, and resumed by someone else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palaestra.cluster import fleet
from palaestra.cluster.copies import Copies, copy_kind
from palaestra.cluster.placement import Kind
from palaestra.core.episode import Key
from palaestra.core.errors import ClusterFailed, RunTakenOver
from palaestra.store.run_folder import RunFolder
from tests.cluster.processes import Processes, Thawing
from tests.store.samples import episode
from tests.store.test_run_copy import dump


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAESTRA_COPIES", str(tmp_path / "copies"))
    return tmp_path / "copies"


@asynccontextmanager
async def copied(
    folder: Path, launcher: Processes, say: Callable[[str], None] = print, count: int = 1
) -> AsyncIterator[tuple[RunFolder, Copies]]:
    with RunFolder.create(folder / "run", {}) as run:
        run.database.finish(episode(Key("before", 0)))
        async with Copies(launcher, say, copy_kind(count), run.database) as copies:
            yield run, copies


async def record(run: RunFolder, phase: str, episodes: int) -> None:
    """Record episodes as sessions do, each of which waits for its events."""

    async def one(number: int) -> None:
        lived = episode(Key(phase, number))
        for event in [*lived.calls, *lived.steps]:
            saved = run.database.append(lived.key, event)
            assert saved is not None
            await asyncio.wait_for(saved, 30)
        saved = run.database.finish(lived)
        assert saved is not None
        await asyncio.wait_for(saved, 30)

    await asyncio.gather(*(one(number) for number in range(episodes)))


def test_a_copy_has_whatever_was_acknowledged(tmp_path: Path, root: Path) -> None:
    async def run() -> None:
        launcher, said = Processes(1), list[str]()
        async with copied(tmp_path, launcher, said.append) as (run, copies):
            await record(run, "x", 8)
            launcher.running[1].kill()  # at once, so it has no more than it acknowledged
            await asyncio.to_thread(launcher.running[1].wait)
            with RunFolder.read(root / "run") as copy:
                assert copy.database.episodes("x") == run.database.episodes("x")
                assert copy.database.episodes("before") == run.database.episodes("before")
            assert copies.roster.entries[0].kind == "copy"
        assert any("a copy of the record is on" in line and str(root) in line for line in said)

    asyncio.run(run())


def test_a_copy_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path, root: Path) -> None:
    async def run() -> None:
        launcher, said = Processes(1), list[str]()
        async with copied(tmp_path, launcher, said.append) as (run, _):
            working = asyncio.create_task(record(run, "x", 32))
            for birth in (1, 2):
                while birth not in launcher.running or not (root / "run" / "run.json").exists():
                    await asyncio.sleep(0.01)
                launcher.running[birth].kill()
            await working
            run.database.put("last", {"number": 1 / 3})
        assert dump(root / "run") == dump(tmp_path / "run")
        assert any("copy 1 on" in line and "status -9" in line for line in said)

    asyncio.run(run())


@pytest.mark.slow
def test_nothing_is_acknowledged_while_there_is_no_copy(tmp_path: Path) -> None:
    class One(Processes):
        def room(self, kind: Kind) -> int:
            return 0 if self.started else 1

    async def run() -> None:
        launcher = One(1)
        async with copied(tmp_path, launcher) as (run, copies):
            launcher.running[1].kill()
            while copies.connected:
                await asyncio.sleep(0.01)
            lived = episode(Key("x", 0))
            saved = run.database.append(lived.key, lived.calls[0])
            assert saved is not None
            await asyncio.sleep(1.0)
            assert not saved.over
            assert run.database.past(lived.key) == [lived.calls[0]]  # here it is
            launcher.started = 0  # a machine joins
            await asyncio.wait_for(saved, 30)

    asyncio.run(run())


@pytest.mark.slow
def test_a_frozen_copy_is_replaced_and_the_run_goes_on(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SILENT", 3)

    async def run() -> None:
        launcher = Thawing(1)
        async with copied(tmp_path, launcher) as (run, _):
            frozen = launcher.running[1]
            os.kill(frozen.pid, signal.SIGSTOP)
            await asyncio.wait_for(record(run, "x", 8), 30)
            os.kill(frozen.pid, signal.SIGCONT)
            launcher.running.pop(1)
            assert await asyncio.to_thread(frozen.wait, 10) == 0  # it ends without its driver
            await record(run, "y", 8)
        assert dump(root / "run-2") == dump(tmp_path / "run")  # the first one was in use

    asyncio.run(run())


def test_a_run_whose_copy_was_resumed_stops_and_records_nothing_there(
    tmp_path: Path, root: Path
) -> None:
    async def run() -> None:
        async with copied(tmp_path, Processes(1)) as (run, _):
            await record(run, "x", 2)
            with RunFolder.open(root / "run", take_over=True) as resumed:
                with pytest.raises(RunTakenOver, match="taken over"):
                    await record(run, "y", 2)
                with pytest.raises(RunTakenOver):
                    run.database.put("late", 1)
                assert resumed.database.phases() == ["before", "x"]

    asyncio.run(run())


def test_copies_that_die_again_and_again_stop_the_run_with_the_cause(tmp_path: Path) -> None:
    async def run() -> None:
        launcher = Processes(1, program="import sys; sys.exit('no space left')")
        with pytest.raises(ClusterFailed, match=r"Five copies died .*no space left"):
            async with copied(tmp_path, launcher):
                pass

    asyncio.run(run())


def test_two_copies_both_have_what_was_acknowledged(tmp_path: Path, root: Path) -> None:
    async def run() -> None:
        launcher: Any = Processes(2)
        async with copied(tmp_path, launcher, count=2) as (run, _):
            await record(run, "x", 4)
            for process in launcher.running.values():
                process.kill()
            for name in ("run", "run-2"):
                with RunFolder.read(root / name) as copy:
                    assert copy.database.episodes("x") == run.database.episodes("x")

    asyncio.run(run())
