"""Workers are killed from outside, as by a kernel that lacks memory; results stay the same."""

from __future__ import annotations

import asyncio
import io
import random
import re
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from palaestra.cli.interrupt import resuming
from palaestra.cli.main import main
from palaestra.core.errors import TooManyFaults
from palaestra.evaluation.reports.report_files import headline
from palaestra.rollout import worker_handle
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training import run_context
from palaestra.training.recipe import check
from palaestra.training.run import execute, write_report
from tests.processes import children_with
from tests.rollout.test_worker_pool import dying_starts
from tests.training import mortal
from tests.training.learning import train
from tests.training.runs import (
    RECIPE,
    command,
    environment,
    recorded_episodes,
    weights_hash,
    write_recipe,
)

KEYS = (f"environment.id={mortal.ID}", "environment.workers=1", "environment.turns=6")


@pytest.fixture(autouse=True)
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv(mortal.MARKS, str(folder))
    monkeypatch.setenv(mortal.WHERE, "train")


@pytest.fixture(scope="module")
def undisturbed(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing waits to be killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mortal.MARKS, str(folder))
        patch.setenv(mortal.WHERE, "nowhere")
        with trained(start, folder / "whole"):
            return folder / "whole" / "run"


def trained(start: Path, folder: Path, *keys: str) -> RunFolder:
    folder.mkdir()
    return train(start, folder, *KEYS, *keys)


def learned(run: RunFolder) -> list[float]:
    return [values["gradient_norm"] for _, values in run.database.metrics("rl")]


# ── deterministic runs ───────────────────────────────────────────────────────


@pytest.mark.slow
def test_kills_while_it_learns_leave_a_deterministic_run_what_it_was(
    start: Path, undisturbed: Path, tmp_path: Path
) -> None:
    with mortal.killing() as killed, trained(start, tmp_path / "killed") as run:
        assert len(killed) == 2 and all(norm > 0 for norm in learned(run))
    assert recorded_episodes(tmp_path / "killed" / "run") == recorded_episodes(undisturbed)
    assert weights_hash(tmp_path / "killed" / "run") == weights_hash(undisturbed)


@pytest.mark.slow
def test_a_deterministic_run_ends_where_infrastructure_breaks_it_each_time(
    start: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_context, "TRIES", 1)
    with (
        mortal.killing() as killed,
        pytest.raises(TooManyFaults, match=r"rl/\d at the last of 1 tries.*from outside"),
    ):
        trained(start, tmp_path / "killed")
    assert killed
    resumed(tmp_path / "killed" / "run")
    assert recorded_episodes(tmp_path / "killed" / "run") == recorded_episodes(undisturbed)
    assert weights_hash(tmp_path / "killed" / "run") == weights_hash(undisturbed)


def resumed(path: Path) -> None:
    with RunFolder.open(path) as run:
        recipe = check(run.database.get("recipe"))
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))


# ── other runs ───────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_what_a_test_lacks_is_reported_and_a_resumed_run_runs_it(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mortal.WHERE, "test")
    keys = ("deterministic=false", "evaluation.tasks=5")
    with mortal.killing() as killed, trained(start, tmp_path / "run", *keys) as run:
        message = headline(write_report(run))
        before = {e.key: e for e in run.database.episodes("test/base")}
    assert len(killed) == 2
    path = tmp_path / "run" / "run"
    assert re.match(r"Success on 3 to 5 held-out tasks", message)
    assert "2 of 5 tasks under base (infrastructure)" in message
    assert f"palaestra train --resume {path}" in message
    weights = weights_hash(path)
    resumed(path)
    with RunFolder.read(path) as run:
        after = {e.key: e for e in run.database.episodes("test/base")}
        names = [stage["name"] for stage in run.database.get("stages")]
        message = headline(write_report(run))
    assert all(episode.outcome.scored for episode in after.values())
    assert [after[key] for key in before if before[key].outcome.scored] == [
        episode for episode in before.values() if episode.outcome.scored
    ]
    assert names == ["test/base", "rl", "test/rl"] and weights_hash(path) == weights
    assert message.startswith("Success on 5 held-out tasks") and "--resume" not in message


def test_what_an_evaluation_lacks_is_reported_and_a_resumed_one_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(mortal.WHERE, "test")
    run = str(tmp_path / "eval")
    with mortal.killing() as killed:
        asked = ["--env", mortal.ID, "--model", "random", "-n", "6", "--seed", "1"]
        assert main(["eval", *asked, "--turns", "6", "--run", run]) == 0
    shown, message = capsys.readouterr()
    assert len(killed) == 2 and "4 tasks)" in " ".join(shown.split())
    assert "2 of 6 episodes" in message and f"palaestra eval --resume {run}" in message
    assert main(["eval", "--resume", run]) == 0
    shown, message = capsys.readouterr()
    assert "6 tasks)" in " ".join(shown.split()) and "--resume" not in message


# ── the command line ─────────────────────────────────────────────────────────


def test_workers_that_do_not_start_end_a_command_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker_handle, "BACK_OFF", (0.01, 0.02))
    dying_starts(tmp_path, times=1000)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = tmp_path / "eval"
    asked = ["eval", "--env", "probe/umbrella-4", "--model", "random", "-n", "2", "--run", str(run)]
    assert main(asked) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("palaestra: A worker process does not start: 3 times")
    assert "killed by SIGKILL" in message and "Free memory" in message
    assert message.endswith(f"Resume with: {resuming('eval', run)}")
    (tmp_path / "sitecustomize.py").unlink()
    assert main(["eval", "--resume", str(run)]) == 0
    run = tmp_path / "train"
    dying_starts(tmp_path, times=1000)
    assert main(["train", str(write_recipe(tmp_path)), "--run", str(run)]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.endswith(f"Resume with: {resuming('train', run)}")


# ── the law ──────────────────────────────────────────────────────────────────


def killed_run(folder: Path, kills: int, seed: int, begin: str) -> tuple[Path, int]:
    """A run whose workers are killed at random moments once it says `begin`; how often."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    run, log, done = folder / "run", folder / "said", 0
    world = f"{mortal.__name__}:{mortal.Dragging.__name__}/babyai/GoToObjS4"
    text = RECIPE.replace('"babyai/GoToObjS4"', f'"{world}"\nturns = 6')
    arguments: list[str | Path] = ["train", write_recipe(folder, text), "--run", run]
    while True:
        with log.open("w") as output:
            process = subprocess.Popen(
                command(*arguments),
                env=environment(),
                cwd=Path(__file__).parents[2],
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        parent = psutil.Process(process.pid)
        while done < kills and process.poll() is None:
            time.sleep(rng.uniform(0.0, 1.0))
            if begin in log.read_text():
                done += kill_a_worker(parent)
        if process.wait(timeout=500) == 0:
            return run, done
        assert f"palaestra train --resume {run}" in log.read_text(), log.read_text()
        arguments = ["train", "--resume", run]


def kill_a_worker(parent: psutil.Process) -> bool:
    try:
        for child in children_with("palaestra.rollout.worker", parent.pid):
            child.kill()
            return True
    except psutil.Error:
        pass
    return False


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, _ = killed_run(tmp_path_factory.mktemp("unkilled") / "whole", 0, 0, "")
    with RunFolder.read(run) as opened:
        assert all(norm > 0 for norm in learned(opened))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["demonstrations", "reinforcement"])
@pytest.mark.parametrize("series", range(5))
def test_ten_kills_at_any_moment_leave_a_deterministic_run_what_it_was(
    unkilled: Path, tmp_path: Path, series: int, begin: str
) -> None:
    """A hundred in all, half of them while it learns."""
    kills = runs = 0
    while kills < 10:
        folder = tmp_path / str(runs)
        killed, done = killed_run(folder, 10 - kills, 100 * series + runs, begin)
        assert recorded_episodes(killed) == recorded_episodes(unkilled)
        assert weights_hash(killed) == weights_hash(unkilled)
        kills, runs = kills + done, runs + 1
