from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs lie."""
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
