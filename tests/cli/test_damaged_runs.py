"""Commands on a run whose files were damaged: one sentence, the remedy, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from tests.store import damaged

READERS = [
    "show {run}",
    "show {run} eval/test/0.0",
    "show {run} --metrics",
    "train --resume {run}",
    "eval --resume {run}",
    "export {run} --format json --to {out}",
    "replay {run}",
    "diff {run} {run}",
    "aggregate {run}",
    "leaderboard {run}",
    "ratings {run}",
    "exploitability {run}",
    "judge {run}",
    "judge calibrate {run} --judge rules",
    "explain {run} eval/test/0.0",
    "compare {run}",
    "ctl {run} status",
]


def refused(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that ends with code 2, in one paragraph without a traceback."""
    capsys.readouterr()
    asked = command.format(run=run, out=run.parent / "out.jsonl").split()
    code = main(asked)
    message = capsys.readouterr().err
    assert code == 2, message
    assert message.startswith("palaestra: ") and message.count("\n") == 1
    return message


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("how", ["garbled", "emptied"])
def test_commands_name_a_damaged_run_and_the_remedy(
    command: str, how: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / run
    if how == "garbled":
        damaged.garble_all_but_the_first_page(path)
    else:
        (path / "run.sqlite").write_bytes(b"")
    before = (path / "run.sqlite").read_bytes()
    message = refused(command, path, capsys)
    assert f"The run {path} is damaged" in message and f"`palaestra doctor {path}`" in message
    assert (path / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize("command", ["show a", "replay a", "leaderboard a", "compare a"])
def test_a_run_named_without_its_folder_that_lost_its_run_json_is_found(
    command: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / run / "run.json").unlink()
    message = refused(command, tmp_path / run, capsys)
    assert f"The run {tmp_path / run} is damaged: it has no run.json" in message
    assert f"`palaestra doctor {tmp_path / run}`" in message


def test_the_list_of_runs_names_a_damaged_one_among_the_others(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged.make(tmp_path / "broken")
    damaged.garble_all_but_the_first_page(tmp_path / "broken")
    damaged.make(tmp_path / "bare")
    (tmp_path / "bare" / "run.json").unlink()
    capsys.readouterr()
    assert main(["list", "runs", "--json"]) == 0
    message = {row["name"]: row["summary"] for row in json.loads(capsys.readouterr().out)}
    assert "umbrella" in message[run]
    for name in ("broken", "bare"):
        assert f"palaestra doctor {tmp_path / name}" in message[name]
