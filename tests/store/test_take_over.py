"""A run is one writer's: who was frozen while another one went on is refused, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RunLocked, RunTakenOver
from palaestra.store import take_over
from palaestra.store.database import Database
from palaestra.store.liveness import worker
from palaestra.store.run_folder import RunFolder
from tests.chosen import mostly_slow
from tests.store import samples

WRITER = """
import sys, time
from pathlib import Path
from palaestra.core.errors import RunTakenOver
from palaestra.store.run_folder import RunFolder
run = RunFolder.open(Path(sys.argv[1]))
count = 0
try:
    while True:
        run.database.put(f"count/{count}", count)
        print(count, flush=True)
        count += 1
        time.sleep(0.001)
except RunTakenOver as error:
    print(f"refused: {error}", flush=True)
run.close()
"""


def writing(folder: Path) -> subprocess.Popen[str]:
    """A process that writes into the run, and says what it committed."""
    RunFolder.create(folder, {}).close()
    process = samples.python(WRITER, str(folder))
    assert process.stdout is not None and process.stdout.readline() == "0\n"
    return process


def freeze(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_frozen_writer_is_named_with_what_helps(tmp_path: Path) -> None:
    process = writing(tmp_path / "run")
    with pytest.raises(RunLocked, match=f"by process {process.pid}; wait until it ends"):
        RunFolder.open(tmp_path / "run")
    freeze(process)
    with pytest.raises(RunLocked, match=rf"stopped; .*kill -CONT {process.pid}.*--take-over"):
        RunFolder.open(tmp_path / "run")
    process.kill()
    process.wait()


@pytest.mark.parametrize("seed", mostly_slow(range(4), 0))
def test_a_frozen_writer_that_thaws_is_refused_and_nothing_is_lost(
    tmp_path: Path, seed: int
) -> None:
    process = writing(tmp_path / "run")
    time.sleep(0.05 + seed * 0.0103)
    freeze(process)
    with RunFolder.open(tmp_path / "run", take_over=True) as run:
        run.database.put("mine", True)
        assert worker(tmp_path / "run") == os.getpid()
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout is not None
        *said, refused = process.stdout.read().splitlines()
        assert process.wait(10) == 0
        assert refused.startswith(f"refused: The run {tmp_path / 'run'} was taken over by process")
        assert f"process {os.getpid()}" in refused
        run.database.put("mine, too", True)
    with RunFolder.open(tmp_path / "run") as again:
        counts = [0, *map(int, said)]
        assert again.database.documents("count/").keys() >= set(map(str, counts))
        assert set(again.database.documents("mine")) == {"", ", too"}
        again.database.check()


def test_a_writer_frozen_within_a_transaction_is_no_obstacle(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    first = RunFolder.open(tmp_path / "run")
    first.database.put("before", 1)
    connection = first.database._connection
    connection.execute("BEGIN IMMEDIATE")  # and SQLite's lock with it
    connection.execute("INSERT INTO document VALUES ('half', '1')")
    with RunFolder.open(tmp_path / "run", take_over=True) as second:
        assert second.database.get("before") == 1 and second.database.get("half") is None
        second.database.put("after", 1)
        connection.execute("COMMIT")
        with pytest.raises(RunTakenOver):
            first.database.put("late", 1)
        first.close()
    with RunFolder.open(tmp_path / "run") as third:
        assert third.database.get("after") == 1 and third.database.get("half") is None


def test_a_holder_on_another_machine_is_named_and_can_be_passed_over(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    (tmp_path / "run" / "run.lock").write_text("77\nfaraway 0-0\n")
    with pytest.raises(RunLocked, match=r"process 77 on faraway, which cannot be seen .*--take-ov"):
        RunFolder.open(tmp_path / "run")
    assert worker(tmp_path / "run") is None
    RunFolder.open(tmp_path / "run", take_over=True).close()
    RunFolder.open(tmp_path / "run").close()


def test_a_dead_holder_on_this_machine_needs_no_word(tmp_path: Path) -> None:
    process = writing(tmp_path / "run")
    process.kill()
    process.wait()
    RunFolder.open(tmp_path / "run").close()


def test_a_writer_at_work_is_not_taken_over(tmp_path: Path) -> None:
    process = writing(tmp_path / "run")
    with pytest.raises(RunLocked, match="still written to"):
        RunFolder.open(tmp_path / "run", take_over=True)
    assert process.poll() is None
    process.kill()
    process.wait()
    RunFolder.open(tmp_path / "run").close()


def test_without_its_lock_file_the_latest_writer_counts(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run", {})
    (tmp_path / "run" / "run.lock").unlink()
    with RunFolder.open(tmp_path / "run") as second:
        for write in (
            lambda: first.database.put("late", 1),
            lambda: first.database.finish(samples.episode(Key("rl", 0))),
            lambda: first.database.add_metrics("rl", 1, {}),
            lambda: first.database.forget(Key("rl", 0)),
        ):
            with pytest.raises(RunTakenOver, match="was taken over by process"):
                write()
        second.database.put("mine", 1)
    first.close()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_of_any_number_of_writers_the_latest_one_writes(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    """Each number opens the database again, or writes with one that was opened before."""
    file = tmp_path_factory.mktemp("run") / "run.sqlite"
    writers = [Database.open(file)]
    accepted = []
    for turn, choice in enumerate(order):
        if choice == 0:
            writers.append(Database.open(file))
            continue
        writer = writers[-min(choice, len(writers))]
        if writer is writers[-1]:
            writer.put(str(turn), turn)
            accepted.append(turn)
            continue
        with pytest.raises(RunTakenOver):
            writer.put(str(turn), turn)
    assert sorted(writers[0].documents("").values()) == accepted
    for writer in writers:
        writer.close()


def test_a_copy_is_not_made_of_a_database_that_changes(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        file = run.database.path
        before = file.stat().st_ino
        original = take_over._copy

        def meddled(source: Path, fresh: Path) -> None:
            original(source, fresh)
            run.database.put("meanwhile", 1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(take_over, "_copy", meddled)
            with pytest.raises(RunLocked, match="still written"):
                take_over.replace_database(file)
        assert file.stat().st_ino == before and run.database.get("meanwhile") == 1
        assert not list(file.parent.glob(".run.sqlite*"))
