"""What holds for the repository as a whole: links, snippets, tables, and what must not be in it."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chosen import mostly_slow

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
COVERAGE = ["system", "where", "evidence", "level", "note"]

# Assembled, so that this file does not match its own rules.
HOMES = "|".join(["home", "Users", "root", "work", "workspace"])
FOREIGN = re.compile(
    rf"(?<![\w.~\-/])/(?:{HOMES})/\w"
    r"|https?://[^/\s\"']*(?:pypi|pythonhosted|registry|artifactory|devpi|nexus)"
)


TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def snippets() -> Iterator[tuple[str, str]]:
    for page in [*sorted(ROOT.glob("docs/concepts/*.md")), ROOT / "docs/players.md"]:
        for number, (kind, code) in enumerate(FENCE.findall(page.read_text()), 1):
            if kind == "python run":
                yield f"{page.name}:{number}", code


def anchors(page: Path) -> set[str]:
    """The anchors that headings of a Markdown page get."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def files_to_publish() -> list[Path]:
    """Every file that is tracked, or would be by `git add --all`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (ROOT / line for line in listed.stdout.split("\0") if line)
    return [path for path in paths if path.is_file()]


def coverage_rows() -> list[dict[str, str]]:
    with (ROOT / "docs/coverage.csv").open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        rows = list(reader)
    assert reader.fieldnames == COVERAGE
    return rows


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_relative_link_resolves(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    broken = []
    for link in LINK.findall(prose):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_fence_is_closed(page: Path) -> None:
    fences = re.findall(r"^\s*```", page.read_text(), re.MULTILINE)
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("code", [pytest.param(code, id=id) for id, code in snippets()])
def test_snippets_of_the_concept_pages_run(code: str) -> None:
    assert "assert" in code, "a snippet shows what holds"
    exec(compile(code, "<snippet>", "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize(
    "page",
    mostly_slow(TUTORIALS, *(page for page in TUTORIALS if page.stem != "rounds")),
    ids=name,
)
def test_tutorials_run_from_top_to_bottom(page: Path) -> None:
    blocks = [code for kind, code in FENCE.findall(page.read_text()) if kind == "python run"]
    code = "\n".join(blocks)
    assert "assert" in code, "a tutorial shows what holds"
    exec(compile(code, str(page), "exec"), {"__name__": page.stem})


def test_every_concept_has_a_page_that_runs() -> None:
    pages = {id.partition(".")[0] for id, _ in snippets()}
    concepts = "task environment model agent session episode credit learner"
    assert pages >= set(concepts.split())


def test_the_table_of_what_to_change_names_files_that_exist() -> None:
    page = (ROOT / "docs/design.md").read_text()
    table = page.partition("## I want to change X")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:src|tests)/[^`]+)`", table)
    assert len(paths) > 50
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_coverage_is_well_formed() -> None:
    for row in coverage_rows():
        assert None not in row, f"too many columns: {row}"
        assert None not in row.values(), f"too few columns: {row}"
        assert row["system"].strip(), row
        assert row["evidence"].strip(), row
        assert row["level"] in {"full", "reduced"}, row


def test_coverage_names_each_system_once() -> None:
    systems = [row["system"] for row in coverage_rows()]
    assert len(systems) == len(set(systems))


def test_coverage_points_to_evidence_that_exists() -> None:
    for row in coverage_rows():
        for evidence in row["evidence"].split():
            path, *parts = evidence.split("::")
            file = ROOT / path
            assert file.exists(), f"{row['system']}: no {path}"
            for part in parts:
                wanted = rf"^\s*(?:async )?(?:def|class) {re.escape(part.partition('[')[0])}\b"
                text = file.read_text()
                assert re.search(wanted, text, re.MULTILINE), f"{row['system']}: no {evidence}"


def test_the_tables_of_algorithms_are_what_is_registered() -> None:
    script = [sys.executable, "scripts/algorithm_tables.py", "--check"]
    done = subprocess.run(script, cwd=ROOT, check=False)
    assert done.returncode == 0, "run scripts/algorithm_tables.py"


def test_nothing_stays_that_only_tests_use() -> None:
    pytest.importorskip("vulture", reason="of the extra dev")
    script = [sys.executable, "scripts/unused.py"]
    done = subprocess.run(script, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files_to_publish():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and other binary files
        found += [f"{name(path)}: {match[0]}" for match in FOREIGN.finditer(text)]
    assert not found


def test_constraints_are_exact_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9.\-]+==[0-9][0-9a-z.]*", pin)] == []
