"""The page on statistics: what its snippets assert holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/evaluation/statistics.md"
SNIPPETS = re.findall(r"^```python run\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", SNIPPETS, ids=range(1, len(SNIPPETS) + 1))
def test_each_snippet_runs(code: str) -> None:
    assert "assert" in code, "a snippet shows what holds"
    exec(compile(code, "<snippet>", "exec"), {"__name__": "snippet"})


def test_the_page_has_snippets() -> None:
    assert len(SNIPPETS) >= 5
