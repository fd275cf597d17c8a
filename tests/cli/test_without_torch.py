"""Without torch: what needs it says so, and what does not works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = """
import importlib.metadata, sys

known = importlib.metadata.version

def version(name):
    if name == "torch":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)

importlib.metadata.version = version
sys.modules["torch"] = None

from palaestra.cli.main import main

sys.exit(main())
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDDEN, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_an_evaluation_without_a_model_in_this_process_works(tmp_path: Path) -> None:
    asked = ("--env", "probe/sea-3", "--model", "random", "-n", "2", "--run", "here", "--json")
    done = run(tmp_path, "eval", *asked)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "here" / "run.json").read_text())


@pytest.mark.parametrize(
    "arguments",
    [("eval", "--env", "probe/sea-3", "--model", "smollm2-135m", "-n", "2"), ("train", "quick")],
)
def test_what_needs_torch_says_so_in_one_sentence(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("palaestra: torch is not installed")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
