"""A folder of this machine that any user may read and write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Create a folder outside pytest's own, which other users cannot read."""
    with tempfile.TemporaryDirectory(prefix="open-") as name:
        Path(name).chmod(0o777)
        yield Path(name)
