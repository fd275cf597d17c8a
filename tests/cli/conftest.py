"""Runs of the command line in processes of their own, in a folder of the test."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from palaestra.cli.main import main

Palaestra = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def palaestra(tmp_path: Path) -> Palaestra:
    """`palaestra("list", "runs", input="…")` runs the command as a user would."""

    def run(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "palaestra", *arguments],
            cwd=tmp_path,
            input=input,
            capture_output=True,
            text=True,
            env={**os.environ, "PALAESTRA_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"},
            timeout=120,
        )

    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation's run, made once."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    asked = [
        "eval",
        "--env",
        "probe/umbrella-4",
        "--model",
        "random",
        "-n",
        "12",
        "--run",
        str(folder),
    ]
    assert main(asked) == 0
    return folder


@pytest.fixture
def run(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a copy of it."""
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    shutil.copytree(recorded, tmp_path / "a")
    return "a"
