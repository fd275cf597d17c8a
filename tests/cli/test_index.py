"""`palaestra index`: searches need not wait for what was indexed ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.store.search_index import TextIndex
from tests.viewer.stores import make_run, plain

CaptureFixture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    return tmp_path


def test_an_indexed_run_is_searched_whole_at_once(root: Path, capsys: CaptureFixture) -> None:
    run = make_run(root, "a", [plain(Key("eval/test", i)) for i in range(450)])
    make_run(root, "b", [plain(Key("eval/test", 0))])
    assert main(["index", "a"]) == 0
    captured = capsys.readouterr()
    assert (
        captured.out == "a: 450 episodes can be searched\n" and "450/450 episodes" in captured.err
    )
    assert len(TextIndex(run).find(["forward"])) == 450
    assert TextIndex(root / "b").find(["forward"]) == []
    assert main(["index", str(run)]) == 0  # nothing is left to do
    assert capsys.readouterr().out == "a: 450 episodes can be searched\n"


def test_all_runs_are_indexed_and_one_that_is_broken_stops_no_other(
    root: Path, capsys: CaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        make_run(root, name, [plain(Key("eval/test", 0))])
    (root / "b" / "search-1.sqlite").write_bytes(b"something else entirely" * 200)
    assert main(["index"]) == 2
    captured = capsys.readouterr()
    assert sorted(captured.out.split("\n")[:-1]) == [
        "a: 1 episodes can be searched",
        "c: 1 episodes can be searched",
    ]
    messages = [line for line in captured.err.splitlines() if line.startswith("palaestra: ")]
    assert len(messages) == 1 and "search-1.sqlite" in messages[0] and "Delete it" in messages[0]


def test_a_run_that_is_not_there_is_named(capsys: CaptureFixture) -> None:
    assert main(["index", "nope"]) == 2
    assert "There is no run in" in capsys.readouterr().err
