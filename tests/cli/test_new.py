"""`palaestra new` writes a package that works as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palaestra.cli.main import main


def test_the_package_passes_its_own_tests_and_the_kit(tmp_path: Path) -> None:
    folder = tmp_path / "shelf_order"
    assert main(["new", "environment", "shelf_order", "--to", str(folder)]) == 0
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}

    def passes(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "passed" in passes("pytest", "-q", "-p", "no:cacheprovider")
    # installed, its id is shelf_order/easy; on the path alone, the class itself is
    check = passes("palaestra", "check-env", "shelf_order.world:ShelfOrder/easy")
    assert "keeps all" in check
    project = (folder / "pyproject.toml").read_text()
    assert 'shelf_order = "shelf_order.world:ShelfOrder"' in project
    assert "NAME" not in project and "TITLE" not in project


def test_an_agent_passes_its_own_tests_and_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "thinker"
    assert main(["new", "agent", "thinker", "--to", str(folder)]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    project = (folder / "pyproject.toml").read_text()
    assert 'thinker = "thinker.agent:Thinker"' in project and "palaestra.agents" in project
    assert "NAME" not in project and "TITLE" not in project

    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    what = ["--env", "probe/memory-4", "--agent", "thinker.agent:Thinker", "--model", "expert"]
    assert main(["eval", *what, "-n", "2", "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["environment", "My World"], "cannot name a package"),
        (["environment", "class"], "cannot name a package"),
        (["environment", "babyai"], "The environment family 'babyai' exists already"),
        (["agent", "react"], "The agent 'react' exists already"),
        (["agent", "my-agent"], "cannot name a package"),
        (["model", "mine"], "There is no kind of package 'model'"),
    ],
)
def test_what_cannot_be_written_is_reported(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "note.txt").write_text("mine")
    assert main(["new", "environment", "shelf", "--to", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
