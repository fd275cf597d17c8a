"""Ids: the environment and the version that they name."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.environment import declared
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.probe.environment import Probe


def test_an_id_may_ask_for_the_version_that_is_here() -> None:
    world = registry.make("probe/memory-4@1?turns=3")
    assert world.spec.name == "memory-4"
    task = registry.tasks("probe/memory-4@1").task(Split.TEST, 0)
    assert world.reset(task).text


@pytest.mark.parametrize("id", ["probe/memory-4@2", "probe/memory-4@01?turns=3"])
def test_another_version_is_refused(id: str) -> None:
    for ask in (registry.make, registry.tasks):
        with pytest.raises(InputError, match="version 1 is installed, and their results do not"):
            ask(id)


def test_a_version_that_rose_leaves_older_results_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "_declared", replace(declared(Probe), version="2"))
    with pytest.raises(InputError, match="write @2"):
        registry.make("probe/memory-4@1")
    assert registry.make("probe/memory-4@2").spec.name == "memory-4"


BELL = """
import palaestra as pa


class Bell(pa.ToolWorld):
    \"\"\"Ring the bell.\"\"\"

    def begin(self, task: pa.Task) -> str:
        self.state = {"rung": False}
        return "A bell."

    @pa.tool
    def ring(self) -> str:
        \"\"\"Ring it.\"\"\"
        self.state["rung"] = True
        return "Ding."

    def verdict(self) -> bool | None:
        return self.state["rung"] or None
"""


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder; like the script, it does not search there by itself."""
    source = str(Path(registry.__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-P", "-m", "palaestra", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_an_environment_is_found_in_the_folder_where_one_works(tmp_path: Path) -> None:
    (tmp_path / "bell.py").write_text(BELL)
    asked = ["eval", "--env", "bell:Bell", "--model", "random", "-n", "2", "--run", "run"]
    done = command(tmp_path, *asked)  # in a worker process, which must find it too
    assert done.returncode == 0, done.stderr
    assert "100.0 %" in done.stdout


def test_a_module_that_is_nowhere_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = command(tmp_path, "check-env", "bell:Bell")
    assert done.returncode == 2
    assert "The module 'bell' of the environment 'bell:Bell' was not found" in done.stderr
    assert "change to the folder of its file" in done.stderr


def test_what_a_module_of_ones_own_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "bell.py").write_text("import no_such_package\n")
    done = command(tmp_path, "check-env", "bell:Bell")
    assert done.returncode == 2 and "package 'no_such_package'" in done.stderr
