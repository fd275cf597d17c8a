"""Runs of the command line in a folder of the test."""

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from palaestra.cli.main import main

Palaestra = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def palaestra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Palaestra:
    """`palaestra("list", "runs", input="…")` runs the command with pipes, in this process."""

    def run(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        output, errors = io.StringIO(), io.StringIO()
        with (
            monkeypatch.context() as patch,
            redirect_stdout(output),
            redirect_stderr(errors),
        ):
            patch.chdir(tmp_path)
            patch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
            patch.setattr(sys, "stdin", io.StringIO(input))
            code = main(arguments)
        said = (output.getvalue(), errors.getvalue())
        return subprocess.CompletedProcess(arguments, code, *said)

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
