"""The site of the documentation: built strictly, complete, and with snippets that hold."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import palaestra as pa

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/**/*.md")])
FENCE = re.compile(r"^ *```(.*?)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def snippets(language: str) -> Iterator[object]:
    """The fenced blocks of a language, of every page."""
    for page in PAGES:
        for number, (kind, code) in enumerate(FENCE.findall(page.read_text()), 1):
            if kind.split()[:1] == [language]:
                yield pytest.param(code, id=f"{page.relative_to(ROOT)}:{number}")


@pytest.mark.parametrize("code", [*snippets("python")])
def test_a_snippet_of_python_compiles_and_what_it_imports_is_there(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.value.id != "pa" or node.attr in pa.__all__, f"there is no pa.{node.attr}"


@pytest.mark.parametrize("code", [*snippets("toml")])
def test_a_snippet_of_toml_is_toml(code: str) -> None:
    assert tomllib.loads(code)


@pytest.mark.parametrize("code", [*snippets("bash"), *snippets("sh")])
def test_a_snippet_of_the_shell_names_commands_that_are_there(code: str) -> None:
    from palaestra.cli.main import COMMANDS

    done = subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True, check=False)
    assert done.returncode == 0 or "<" in code, done.stderr
    for name in re.findall(r"^(?:\.venv/bin/)?palaestra ([a-z][a-z-]*)", code, re.MULTILINE):
        assert name in COMMANDS, f"there is no `palaestra {name}`"


def test_the_page_of_commands_has_every_command() -> None:
    from palaestra.cli.main import COMMANDS

    page = (ROOT / "docs/commands.md").read_text()
    assert [name for name in COMMANDS if f"palaestra {name} " not in page] == []


def test_the_page_of_runs_has_every_renamed_recipe_key() -> None:
    from palaestra.training.renamed_keys import RENAMED

    table = (ROOT / "docs/runs.md").read_text().partition("## Renamed recipe keys")[2]
    named = re.findall(r"^\| `([^`]+)` \| `([^`]+)`", table, re.MULTILINE)
    assert dict(named) == RENAMED


def test_the_reference_has_every_name() -> None:
    named = re.findall(r"^::: palaestra\.(\w+)$", (ROOT / "docs/reference.md").read_text(), re.M)
    assert sorted(named) == sorted(pa.__all__)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="of the extra dev")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_a_page_for_each_document(site: Path) -> None:
    for page in ROOT.glob("docs/**/*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page
    for name in ("SPECIFICATION", "CONTRIBUTING", "examples", "examples/one_rl_step_py"):
        assert (site / "repository" / f"{name}.html").is_file(), name


def test_the_reference_describes_every_name(site: Path) -> None:
    text = (site / "reference.html").read_text()
    for name in pa.__all__:
        assert re.search(rf'<h3 id="palaestra\.{name}"', text), name


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(https?://[^\"\s>]+)")
    styles = re.compile(
        r"<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*href=\"?(https?:[^\"\s>]+)"
    )
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not fetched.findall(text) + styles.findall(text), page
