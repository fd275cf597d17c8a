"""Run folders: made once, worked on by one process, read by many."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaestra import __version__
from palaestra.core.errors import InputError, RunLocked, RunVersionMismatch
from palaestra.store.run_folder import RunFolder, default_root, list_runs, new_run_path
from tests.store import samples

HOLDER = """
import os, sys, time
from pathlib import Path
from palaestra.store.run_folder import RunFolder
run = RunFolder.open(Path(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_new_run_holds_its_recipe_and_states_what_it_is(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a" / "run", {"seed": 1}) as run:
        assert run.database.get("recipe") == {"seed": 1}
        assert run.checkpoints == run.path / "checkpoints"
        assert run.checkpoints.is_dir()
    about = json.loads((run.path / "run.json").read_text())
    assert about["palaestra"] == __version__
    assert datetime.now(UTC) - datetime.fromisoformat(about["created"]) < timedelta(hours=1)


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"seed": 1}).close()
    with pytest.raises(InputError, match="already holds a run"):
        RunFolder.create(tmp_path / "run", {"seed": 2})
    with RunFolder.read(tmp_path / "run") as run:
        assert run.database.get("recipe") == {"seed": 1}


def test_a_path_that_cannot_be_a_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        RunFolder.create(tmp_path / "file", {})


def test_a_path_without_a_run_is_bad_input_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("[]")
    (tmp_path / "file").touch()
    for name in ("missing", "broken", "file"):
        for opener in (RunFolder.open, RunFolder.read):
            with pytest.raises(InputError, match=f"no run in .*{name}"):
                opener(tmp_path / name)
    assert not (tmp_path / "missing").exists()


def test_a_run_that_lost_its_database_is_not_taken_up_as_empty(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    (tmp_path / "run" / "run.sqlite").unlink()
    for opener in (RunFolder.open, RunFolder.read):
        with pytest.raises(InputError, match=r"lost its run\.sqlite"):
            opener(tmp_path / "run")


def test_another_format_is_refused_with_both_versions_and_the_remedy(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    about = {"format": 99, "palaestra": "7.5.0", "created": "2030-01-01T00:00:00+00:00"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    for opener in (RunFolder.open, RunFolder.read):
        with pytest.raises(RunVersionMismatch, match=r"format 99.*format 3.*palaestra==7\.5\.0"):
            opener(tmp_path / "run")


def test_a_run_in_a_folder_that_may_not_be_written_can_be_read() -> None:
    code = """
        import os, sys
        from pathlib import Path
        from palaestra.core.episode import Key
        from palaestra.core.errors import InputError
        from palaestra.store.run_folder import RunFolder
        from tests.store import samples

        path = Path(sys.argv[1]) / "run"
        with RunFolder.create(path, {"seed": 1}) as run:
            run.database.finish(samples.episode(Key("rl", 0)))
        path.chmod(0o555)
        (path / "run.lock").chmod(0o444)
        if os.geteuid() == 0:  # whom no permission stops
            os.setuid(65534)
        with RunFolder.read(path) as run:
            print(run.database.episodes("rl") == [samples.episode(Key("rl", 0))])
        try:
            RunFolder.open(path)
        except InputError as error:
            print("permissions" in str(error))
        """
    with tempfile.TemporaryDirectory() as folder:  # pytest's are closed to other users
        Path(folder).chmod(0o755)
        answer = samples.python(code, folder).communicate()[0]
        (Path(folder) / "run").chmod(0o755)
    assert answer == "True\nTrue\n"


# ── the lock ─────────────────────────────────────────────────────────────────


def test_the_error_of_a_second_process_names_the_lock_holder(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    holder = samples.python(HOLDER, str(tmp_path / "run"))
    assert holder.stdout is not None
    assert int(holder.stdout.readline()) == holder.pid
    with pytest.raises(RunLocked, match=f"process {holder.pid}"):
        RunFolder.open(tmp_path / "run")
    RunFolder.read(tmp_path / "run").close()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    RunFolder.open(tmp_path / "run").close()


def test_a_run_is_locked_from_its_creation_until_it_is_closed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(RunLocked, match=f"process {os.getpid()}"):
        RunFolder.open(tmp_path / "run")
    run.close()
    run.close()
    RunFolder.open(tmp_path / "run").close()


def test_a_forked_worker_that_outlives_the_run_does_not_keep_it_locked(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    holder = samples.python(
        """
        import os, sys, time
        from pathlib import Path
        from palaestra.store.run_folder import RunFolder
        run = RunFolder.open(Path(sys.argv[1]))
        worker = os.fork()
        if worker == 0:
            print(os.getpid(), flush=True)
            time.sleep(600)
            os._exit(0)
        time.sleep(600)
        """,
        str(tmp_path / "run"),
    )
    assert holder.stdout is not None
    worker = int(holder.stdout.readline())
    try:
        with pytest.raises(RunLocked):
            RunFolder.open(tmp_path / "run")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        RunFolder.open(tmp_path / "run").close()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_taking_up_a_run_clears_half_written_checkpoints(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    leftover = tmp_path / "run" / "checkpoints" / f".tmp-last-{os.getpid()}"
    leftover.mkdir()
    RunFolder.read(tmp_path / "run").close()
    assert leftover.exists()
    RunFolder.open(tmp_path / "run").close()
    assert not leftover.exists()


# ── listings and paths ───────────────────────────────────────────────────────


def test_runs_are_listed_newest_first_and_the_rest_is_skipped(tmp_path: Path) -> None:
    for name in ("old", "new", "newest"):
        RunFolder.create(tmp_path / name, {}).close()
    (tmp_path / "no run").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"format": 1')
    assert [run.name for run in list_runs(tmp_path)] == ["newest", "new", "old"]
    assert list_runs(tmp_path)[0].path == tmp_path / "newest"
    assert list_runs(tmp_path / "missing") == []


def test_a_new_path_is_named_after_the_time_and_numbered_if_taken(tmp_path: Path) -> None:
    stem, day, clock = new_run_path(tmp_path, "babyai/GoTo ../x").name.rsplit("-", 2)
    assert stem == "babyai-GoTo-..-x"
    assert (len(day), len(clock)) == (8, 6)
    paths = set()
    for _ in range(5):  # most of them within one second
        path = new_run_path(tmp_path, "a")
        assert not path.exists()
        path.mkdir()
        paths.add(path)
    assert len(paths) == 5


def test_the_default_root_is_a_setting_or_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", "elsewhere")
    assert default_root() == Path("elsewhere")
    monkeypatch.delenv("PALAESTRA_RUNS")
    assert default_root() == Path("runs")


def test_importing_the_store_loads_no_torch() -> None:
    code = "import palaestra.store.run_folder, sys; print('torch' in sys.modules)"
    assert samples.python(code).communicate()[0] == "False\n"
