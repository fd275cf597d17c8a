"""Every file in `examples/` runs as it stands, in an empty folder, and shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {
    "first_evaluation.py": "Chance failed in",
    "own_environment.py": "B  direct with expert on __main__:Returns (test): success 100.0 %",
    "own_agent.py": "2 agents and models on 1 environments, 2 cells",
    "one_rl_step.py": "step 30",
    "own_credit_rule.py": "agrees with recency",
    "imitation_then_rl.py": "(validation)",
    "two_seeds_dataframe.py": "over 2 training seeds",
}
SLOW = {"own_credit_rule.py", "imitation_then_rl.py", "two_seeds_dataframe.py"}
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
    assert all(20 <= count <= LONGEST for count in lines.values()), lines


@pytest.mark.parametrize("name", sorted(SHOWS.keys() - SLOW - {"one_rl_step.py"}))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert SHOWS[name] in shown(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_an_example_that_trains_runs(name: str, tmp_path: Path) -> None:
    if name == "two_seeds_dataframe.py":
        pytest.importorskip("pandas")
    assert SHOWS[name] in shown(name, tmp_path)


def test_the_step_of_rl_learns(tmp_path: Path) -> None:
    shares = re.findall(r"capitals +([\d.]+) %", shown("one_rl_step.py", tmp_path))
    assert float(shares[0]) < 20 and float(shares[-1]) > 60
