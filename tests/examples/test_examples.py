"""Every file in `examples/` runs as it stands, in an empty folder, and shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chosen import mostly_slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {
    "first_evaluation.py": "The random agent failed in",
    "own_environment.py": "B  direct with expert on __main__:Returns (test): success 100.0 %",
    "foreign_agent.py": "call 1 continues call 0",
    "judge.py": "believe it? yes",
    "own_apps.py": "success           100.0 %  (95 % interval 80.6 to 100.0 %, 16 tasks)",
    "own_team.py": "judge: acted 1",
    "own_agent.py": "2 agents and models on 1 environments, 2 cells",
    "one_rl_step.py": "step 30",
    "own_credit_rule.py": "agrees with recency",
    "imitation_then_rl.py": "(validation)",
    "search_workflow.py": "found: draft, review, draft",
    "two_seeds_dataframe.py": "over 2 training seeds",
}
FAST = ("first_evaluation.py", "own_environment.py", "own_agent.py")
TRAINING = {"own_credit_rule.py", "imitation_then_rl.py", "two_seeds_dataframe.py"}
LONGEST = 120  # lines


def shown(name: str, folder: Path) -> str:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PALAESTRA_RUNS": str(folder / "runs")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_and_fits_on_a_page_or_two() -> None:
    lines = {file.name: len(file.read_text().splitlines()) for file in EXAMPLES.glob("*.py")}
    assert lines.keys() == SHOWS.keys()
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert files - lines.keys() == {"notebook.ipynb"}
    assert all(20 <= count <= LONGEST for count in lines.values()), lines


@pytest.mark.parametrize(
    "name",
    mostly_slow(sorted(SHOWS.keys() - TRAINING - {"one_rl_step.py"}), *FAST),
)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert SHOWS[name] in shown(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRAINING))
def test_an_example_that_trains_runs(name: str, tmp_path: Path) -> None:
    if name == "two_seeds_dataframe.py":
        pytest.importorskip("pandas")
    assert SHOWS[name] in shown(name, tmp_path)


@pytest.mark.slow
def test_the_step_of_rl_learns(tmp_path: Path) -> None:
    shares = re.findall(r"capitals +([\d.]+) %", shown("one_rl_step.py", tmp_path))
    assert float(shares[0]) < 20 and float(shares[-1]) > 60


@pytest.mark.slow
def test_the_notebook_runs_and_shows_a_table_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="of the extra dev")
    nbformat = pytest.importorskip("nbformat", reason="of the extra dev")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"

    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("text/html" in data for data in shown) == 3  # two results and a data frame
    assert sum("image/png" in data for data in shown) == 1
    printed = "".join(output.get("text", "") for output in outputs)
    assert "end: success" in printed and "test/rl: success" in printed
    assert "\x1b" not in printed  # a notebook's output is no terminal
