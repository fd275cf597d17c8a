"""A run whose folder is deleted meanwhile ends with one clear error at its next write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from palaestra.cli import train_command
from palaestra.cli.interrupt import Stopped
from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.core.errors import RunGone
from palaestra.store.run_folder import RunFolder
from tests.store import samples

KEY = Key("rl/1", 0)


def test_nothing_is_written_into_a_deleted_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {})
    run.database.finish(samples.episode(KEY))
    shutil.rmtree(run.path)
    for write in (
        lambda: run.database.finish(samples.episode(KEY)),
        lambda: run.database.put("report", {}),
        lambda: run.database.add_metrics("rl", 1, {"loss": 1.0}),
    ):
        with pytest.raises(RunGone, match="was deleted or moved during its run"):
            write()
    run.close()


def test_a_moved_run_is_whole_where_it_lies_now(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.database.finish(samples.episode(KEY))
        run.path.rename(tmp_path / "moved")
    with RunFolder.open(tmp_path / "moved") as moved:
        assert moved.database.phases() == [KEY.phase]


def test_training_that_is_stopped_does_not_promise_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"

    def stopped(work: object) -> None:
        work.close()  # type: ignore[attr-defined]
        shutil.rmtree(folder)
        raise Stopped

    monkeypatch.setattr(train_command, "run_until_interrupted", stopped)
    assert main(["train", "quick", "--run", str(folder)]) == 1
    output = capsys.readouterr().err
    assert "was deleted or moved" in output and "nothing is lost" not in output
    assert not folder.exists()
