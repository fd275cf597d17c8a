"""`import palaestra as pa`: the names are there, typed, documented, and cost nothing before use."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import palaestra as pa

ROOT = Path(__file__).parents[2]


def typed() -> set[str]:
    """The names that a type checker sees: those imported under TYPE_CHECKING."""
    tree = ast.parse((ROOT / "src/palaestra/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}


def test_every_name_is_there_typed_and_has_a_docstring() -> None:
    assert typed() == set(pa.__all__)
    for name in pa.__all__:
        found = getattr(pa, name)
        assert found.__doc__, name
        assert name in dir(pa)
    assert 20 <= len(pa.__all__) <= 33


def test_every_name_is_shown_on_the_page_of_the_api() -> None:
    page = (ROOT / "docs/python.md").read_text()
    missing = [name for name in pa.__all__ if not re.search(rf"\bpa\.{name}\b", page)]
    assert not missing


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'evalaute'"):
        _ = pa.evalaute


def test_importing_it_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import palaestra as pa; "
        "pa.__version__, dir(pa); print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if name.startswith("palaestra")] == ["palaestra"]
    assert not {"torch", "numpy", "pydantic", "rich"} & set(loaded)


def test_what_authors_of_worlds_and_agents_need_imports_no_torch() -> None:
    code = (
        "import sys; import palaestra as pa; "
        "pa.ToolWorld, pa.Environment, pa.Agent, pa.Session, pa.Trajectory; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
