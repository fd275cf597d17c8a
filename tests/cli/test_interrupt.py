"""Ctrl-C: whatever a command is doing, it says what is kept and what to type next."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palaestra.cli.interrupt import ECHO
from palaestra.cli.main import main
from tests.cli.gated import ENVIRONMENT, GATE, REACHED

TRAIN = ("train", "quick", "--env", ENVIRONMENT, "--set", "environment.workers=0", "--run", "a run")
EVAL = ("eval", "--env", ENVIRONMENT, "--model", "random", "-n", "2", "--workers", "0")
ROOT = Path(__file__).parents[2]


def variables(gate: str = "") -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, GATE: gate}


@contextmanager
def waiting(folder: Path, gate: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in that folder that has come to the gate."""
    with subprocess.Popen(
        [sys.executable, "-m", "palaestra", *arguments],
        cwd=folder,
        env=variables(gate),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == REACHED:
                break
        try:
            yield process
        finally:
            process.kill()


def interrupted(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C twice; return what is printed from the first one to the end."""
    process.send_signal(signal.SIGINT)
    time.sleep(ECHO + 0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    return errors


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(TRAIN, id="train", marks=pytest.mark.slow), pytest.param(EVAL, id="eval")],
)
def test_before_a_run_exists_nothing_was_begun(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with waiting(tmp_path, "import", *arguments) as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == (
        "palaestra: interrupted. Nothing was begun; give the same command again."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_training_that_loads_its_model_stops_cleanly_and_says_how_to_resume(tmp_path: Path) -> None:
    with waiting(tmp_path, "reset", *TRAIN) as process:
        for _ in range(2):  # as `timeout` sends it: to the process and to its group
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        (tmp_path / "reset").touch()
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.startswith("\nStopping; a second Ctrl-C stops at once.")
    assert "Stopped; nothing is lost. Resume with: " in errors
    assert "palaestra train --resume 'a run'" in errors.splitlines()[-1]


@pytest.mark.slow
def test_a_second_ctrl_c_ends_training_at_once_and_says_how_to_resume_as_well(
    tmp_path: Path,
) -> None:
    with waiting(tmp_path, "reset", *TRAIN) as process:
        last = interrupted(process).splitlines()[-1]
    assert last.startswith("palaestra: interrupted. Finished work is kept. Resume with: ")
    assert last.endswith("palaestra train --resume 'a run'")
    assert (tmp_path / "a run" / "run.json").is_file()


def test_an_evaluation_says_which_command_resumes_it_and_that_command_works(tmp_path: Path) -> None:
    with waiting(tmp_path, "reset", *EVAL) as process:
        last = interrupted(process).splitlines()[-1]
    assert last.startswith("palaestra: interrupted. Finished work is kept. Resume with: ")
    printed = shlex.split(last.partition("Resume with: ")[2])
    if printed[0] == "palaestra":  # perhaps another one: this one is tested
        printed[:1] = [sys.executable, "-m", "palaestra"]
    done = subprocess.run(
        [*printed, "--workers", "0", "--json"],
        cwd=tmp_path,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["episodes"] == 2


@pytest.mark.slow
def test_a_judge_keeps_its_verdicts_and_goes_on_after_them(tmp_path: Path) -> None:
    run = tmp_path / "judged"
    world = ("--env", "probe/umbrella-4", "--model", "random", "-n", "3", "--workers", "0")
    assert main(["eval", *world, "--run", str(run)]) == 0
    judge = ("judge", str(run), "--judge", "state:tests.cli.gated:judged", "--unmeasured")
    with waiting(tmp_path, "judge", *judge) as process:
        last = interrupted(process).splitlines()[-1]
    assert last == (
        "palaestra: interrupted. The verdicts so far are stored; the same command goes on after "
        "them."
    )
    done = subprocess.run(
        [sys.executable, "-m", "palaestra", *judge, "--json"],
        cwd=tmp_path,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert (found["judged_now"], found["episodes"]) == (2, 3)


@pytest.mark.slow
def test_a_judge_that_is_measured_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    run = tmp_path / "judged"
    world = ("--env", "probe/umbrella-4", "--model", "random", "-n", "2", "--workers", "0")
    assert main(["eval", *world, "--run", str(run)]) == 0
    judge = ("judge", "calibrate", str(run), "--judge", "state:tests.cli.gated:judged")
    with waiting(tmp_path, "judge", *judge) as process:
        last = interrupted(process).splitlines()[-1]
    assert last == (
        "palaestra: interrupted. The measurement is not stored; give the same command again."
    )
