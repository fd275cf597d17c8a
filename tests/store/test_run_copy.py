"""A copy of a record that is kept in step: equal at each acknowledged moment, and resumable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RunTakenOver
from palaestra.store.damage import NAME, Statement
from palaestra.store.run_copy import RunCopy
from palaestra.store.run_folder import RunFolder
from tests.store.samples import episode


def dump(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / NAME)) as connection:
        return list(connection.iterdump())


def snapshot(run: RunFolder, root: Path) -> Path:
    root.mkdir(exist_ok=True)
    file = root / "snapshot"
    run.database.snapshot()(file)
    return file


class Link:
    """Sends transactions to a copy at once, and acknowledges them when told to."""

    def __init__(self, copy: RunCopy) -> None:
        self.copy = copy
        self.open: list[asyncio.Future[None]] = []

    def __call__(self, epoch: int, statements: list[Statement]) -> asyncio.Future[None]:
        self.copy.apply(epoch, statements)
        self.open.append(asyncio.get_running_loop().create_future())
        return self.open[-1]


@contextmanager
def copied(root: Path) -> Iterator[tuple[RunFolder, RunCopy]]:
    with RunFolder.create(root / "run", {}) as run:
        run.database.put("before", [1])
        copy = RunCopy.make(root / "copies", "run", snapshot(run, root / "copies"))
        with closing(copy):
            yield run, copy


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["finish", "put", "metric", "forget", "append"]), st.integers(0, 3)),
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(ACTIONS)
def test_a_copy_equals_the_record_after_every_transaction(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("copied")

    async def run() -> None:
        with copied(root) as (run, copy):
            link = Link(copy)
            run.database.copy_to(link)
            for number, (action, key) in enumerate(actions):
                lived = episode(Key("x", key), turns=1 + number % 3)
                match action:
                    case "finish":
                        run.database.finish(lived)
                    case "put":
                        run.database.put(f"name {key}", {"number": number / 3})
                    case "metric":
                        run.database.add_metrics("x", key, {"loss": 1 / (number + 3)})
                    case "forget":
                        run.database.forget(lived.key)
                    case "append":
                        run.database.append(Key("y", key), lived.calls[0])
                run.database.episodes("x")  # commits what waits
                assert dump(copy.folder) == dump(run.path)
            run.database.copy_to(None)

    asyncio.run(run())


def test_what_sessions_wait_for_is_done_only_when_the_copy_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        with copied(tmp_path) as (run, copy):
            link = Link(copy)
            run.database.copy_to(link)
            saved = run.database.append(Key("x", 0), episode(Key("x", 0)).calls[0])
            assert saved is not None
            await asyncio.sleep(0.01)
            assert len(link.open) == 1 and not saved.over
            link.open[0].set_result(None)
            await saved
            refused = run.database.append(Key("x", 1), episode(Key("x", 1)).calls[0])
            assert refused is not None
            await asyncio.sleep(0.01)
            link.open[1].set_exception(RunTakenOver("by another"))
            with pytest.raises(RunTakenOver):
                await refused
            run.database.copy_to(None)
            after = run.database.append(Key("x", 2), episode(Key("x", 2)).calls[0])
            assert after is not None
            await after

    asyncio.run(run())


def test_a_snapshot_is_of_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        write = run.database.snapshot()
        run.database.put("later", 1)
        write(tmp_path / "file")
        assert run.database.get("later") == 1
    with closing(sqlite3.connect(tmp_path / "file")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM document")]
    assert names == ["recipe"]


def test_a_copy_that_was_resumed_refuses_the_old_process(tmp_path: Path) -> None:
    async def run() -> None:
        with copied(tmp_path) as (run, copy):
            run.database.copy_to(Link(copy))
            run.database.put("kept", 1)
            with RunFolder.open(copy.folder, take_over=True) as resumed:
                assert resumed.database.get("kept") == 1
                with pytest.raises(RunTakenOver, match="was taken over"):
                    run.database.put("late", 2)
                with pytest.raises(RunTakenOver):
                    run.database.put("later", 3)
                resumed.database.put("new", 4)
                assert set(resumed.database.documents("")) == {"recipe", "before", "kept", "new"}
            with pytest.raises(RunTakenOver):  # nor is it replaced by a fresh copy of the old run
                RunCopy.make(copy.folder.parent, "run", snapshot(run, copy.folder.parent))

    asyncio.run(run())


def test_a_copy_replaces_an_earlier_one_of_its_run_and_no_other(tmp_path: Path) -> None:
    root = tmp_path / "copies"
    with copied(tmp_path) as (run, copy):
        locked = RunCopy.make(root, "run", snapshot(run, root))
        assert locked.folder.name == "run-2"  # the first is still in use
        locked.close()
        copy.close()
        run.database.put("more", 1)
        again = RunCopy.make(root, "run", snapshot(run, root))
        assert again.folder == copy.folder and dump(again.folder) == dump(run.path)
        again.close()
    with RunFolder.create(tmp_path / "other", {}) as other:
        third = RunCopy.make(root, "run", snapshot(other, root))
        assert third.folder.name == "run-3" and dump(third.folder) == dump(other.path)
        third.close()
