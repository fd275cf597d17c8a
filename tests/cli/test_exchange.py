"""`palaestra export` and `palaestra import`, end to end: a run, a file, and a run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode, Key
from palaestra.store.run_folder import RunFolder
from tests.evaluation import made
from tests.store import samples

LOG = Path(__file__).parents[1] / "store" / "exchange" / "inspect-sums.json"
EPISODES = [
    *(samples.episode(Key("rl/1", group)) for group in range(2)),
    made.episode("test/rl", 0, made.OUT_OF_TURNS),
]


@pytest.fixture
def run(tmp_path: Path) -> str:
    folder = tmp_path / "run"
    with RunFolder.create(folder, {"algorithm": "loop"}) as opened:
        for episode in EPISODES:
            opened.database.finish(episode)
    return str(folder)


def stored(folder: Path) -> list[Episode]:
    with RunFolder.read(folder) as opened:
        phases = opened.database.phases()
        return [episode for phase in phases for episode in opened.database.episodes(phase)]


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("parquet", "x.parquet"),
        ("inspect", "x.eval"),
        ("inspect", "x.json"),
        ("otel", "x.jsonl"),
        ("atif", "x.jsonl"),
        ("atif", "trajectories"),
        ("json", "x.jsonl"),
    ],
)
def test_a_run_comes_back_from_every_format_that_holds_episodes(
    run: str, format: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, back = tmp_path / name, tmp_path / "back"
    assert main(["export", run, "--format", format, "--to", str(file)]) == 0
    assert "3 episodes of rl/1, test/rl" in capsys.readouterr().out
    assert main(["import", str(file), "--run", str(back)]) == 0
    assert f"3 episodes ({format})" in capsys.readouterr().out
    assert stored(back) == EPISODES
    with RunFolder.read(back) as opened:
        recipe = opened.database.get("recipe") or {}
    assert recipe["imported"] == {"file": name, "format": format}
    assert ("algorithm" in recipe) == (format == "parquet")


def test_without_a_format_the_file_is_parquet_as_it_always_was(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", run, "--phase", "rl", "--to", str(tmp_path / "x.parquet")]) == 0
    assert "2 episodes of rl/1" in capsys.readouterr().out
    assert main(["export", run, "--to", str(tmp_path / "x.csv")]) == 2
    assert "must end in .parquet" in capsys.readouterr().err


def test_only_solved_episodes_on_request(run: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    assert main(["export", run, "--format", "chat", "--solved", "--to", str(file)]) == 0
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["episode"] for row in found] == ["rl/1/0.0", "rl/1/1.0"]
    assert all(row["messages"] and row["solved"] for row in found)


def test_the_conventions_of_spans_are_a_choice(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "x.jsonl")
    assert main(["export", run, "--format", "otel", "--conventions", "1.36", "--to", file]) == 0
    assert "schemas/1.36.0" in Path(file).read_text()
    assert main(["export", run, "--format", "otel", "--conventions", "1.3", "--to", file]) == 2
    assert "Did you mean '1.36'?" in capsys.readouterr().err
    assert main(["export", run, "--format", "json", "--conventions", "1.36", "--to", file]) == 2
    assert "no effect with --format json; use --format otel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "name", "message"),
    [
        ("inspcet", "x.eval", "Did you mean 'inspect'?"),
        ("inspect", "x.jsonl", "must end in .eval or .json"),
        ("atif", "x.json", "must end in .jsonl or nothing (a folder)"),
    ],
)
def test_a_format_or_name_that_cannot_work_exits_2(
    run: str,
    format: str,
    name: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", run, "--format", format, "--to", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_log_of_inspect_is_shown_like_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "sums")
    assert main(["import", str(LOG), "--run", folder]) == 0
    assert main(["show", folder]) == 0
    assert "33.3 %" in capsys.readouterr().out  # one of three that are scored
    group = next(e.key.group for e in stored(Path(folder)) if e.task.id == "one")
    assert main(["show", folder, f"eval/sums/{group}.0"]) == 0
    shown = capsys.readouterr().out
    assert "add(x=1, y=2)" in shown and "end: success" in shown


def test_an_import_that_fails_leaves_no_run(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "x.jsonl", tmp_path / "back"
    assert main(["export", run, "--format", "json", "--to", str(file)]) == 0
    first, *rest = file.read_text().splitlines()
    for lines, message in (
        ([first, *rest, first], "two episodes with the key rl/1/0.0"),
        ([first, rest[0][:-30]], "cut off"),
        ([first, rest[0].replace('"format": 3', '"format": 4', 1)], "a newer palaestra"),
    ):
        file.write_text("\n".join(lines))
        assert main(["import", str(file), "--run", str(folder)]) == 2
        captured = capsys.readouterr().err
        assert message in captured and "Traceback" not in captured
        assert not folder.exists()
    assert main(["import", str(file), "--run", run]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nothing"), "--run", str(folder)]) == 2
    assert main(["import", str(file), "--format", "jsn", "--run", str(folder)]) == 2
    assert "Did you mean 'json'?" in capsys.readouterr().err
    assert not folder.exists()
