"""docs/python.md: its snippets run from top to bottom, as a script would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import palaestra as pa

PAGE = Path(__file__).parents[2] / "docs/python.md"


@pytest.mark.slow
def test_the_page_of_the_api_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python run\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PALAESTRA_RUNS": str(tmp_path / "runs")},
    )
    assert done.returncode == 0, done.stderr
    assert "95 % interval" in done.stdout and "B - A" in done.stdout


def test_it_counts_the_names_that_there_are() -> None:
    assert f"Its {len(pa.__all__)} names" in PAGE.read_text()
