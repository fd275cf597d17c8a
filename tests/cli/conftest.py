"""Runs of the command line in processes of their own, in a folder of the test."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Palaestra = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def palaestra(tmp_path: Path) -> Palaestra:
    """`palaestra("list", "runs", input="…")` runs the command as a user would."""

    def run(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "palaestra.cli.main", *arguments],
            cwd=tmp_path,
            input=input,
            capture_output=True,
            text=True,
            env={**os.environ, "PALAESTRA_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"},
            timeout=120,
        )

    return run
