"""What is left of a damaged run becomes a new one; the damaged one stays as it is."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

from palaestra.cli.main import main
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, RunLocked
from palaestra.store import checkpoint
from palaestra.store.damage import NAME
from palaestra.store.examine import examine
from palaestra.store.notes import Notes, labelled
from palaestra.store.run_folder import RunFolder
from palaestra.store.salvage import salvage
from tests.store import damaged, samples


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def episodes_of(run: Path) -> dict[Key, Episode]:
    with RunFolder.read(run) as opened:
        return {
            e.key: e for phase in opened.database.phases() for e in opened.database.episodes(phase)
        }


def changed(run: Path, statement: str) -> None:
    with closing(sqlite3.connect(run / NAME)) as connection, connection:
        connection.execute(statement)


def test_a_sound_run_is_found_so_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged.make(tmp_path / "run")
    before = bytes_of(tmp_path)
    assert main(["doctor", str(run)]) == 0
    assert f"sound: {damaged.EPISODES} finished episodes" in capsys.readouterr().out
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("seed", [n for n in range(11) if n != 2])  # 2: both roots are hit
def test_what_is_saved_is_what_was_written_and_the_rest_stays(tmp_path: Path, seed: int) -> None:
    run = damaged.make(tmp_path / "run")
    written = episodes_of(run)
    damaged.garble(run, seed, pages=2)
    before = bytes_of(run)
    saved = salvage(run, tmp_path / "new")
    assert bytes_of(run) == before
    assert examine(saved.run).sound
    kept = episodes_of(saved.run)
    assert sum(saved.episodes.values()) == len(kept)
    assert all(written[key] == episode for key, episode in kept.items())
    with RunFolder.open(saved.run) as new:  # sound, and can be gone on with
        new.database.finish(samples.episode(Key("rl/9", 0)))


def test_one_garbled_page_of_events_costs_few_episodes(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    with closing(sqlite3.connect(run / NAME)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'event'"
        ).fetchone()
    data = bytearray((run / NAME).read_bytes())
    first = int.from_bytes(data[(root - 1) * damaged.PAGE + 12 :][:2], "big")  # a cell of the root
    child = int.from_bytes(data[(root - 1) * damaged.PAGE + first :][:4], "big")  # a leaf of it
    start = (child - 1) * damaged.PAGE
    data[start : start + damaged.PAGE] = random.Random(1).randbytes(damaged.PAGE)
    (run / NAME).write_bytes(data)
    saved = salvage(run, tmp_path / "new")
    lost = damaged.EPISODES - sum(saved.episodes.values())
    assert 1 <= lost == saved.dropped <= 8
    assert saved.unfinished == 1 and saved.recipe
    with RunFolder.read(saved.run) as new:
        assert len(new.database.past(Key("rl/3", 0))) == 5
        assert [values for _, values in new.database.metrics("rl")] == [
            {"loss": 0.5},
            {"loss": 0.25},
        ]
        assert new.database.get("recipe") == {"summary": "a run", "seed": 1}
        assert len(new.database.get("salvaged")["dropped"]) == lost


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{' WHERE id = 3",
        "UPDATE event SET before = 1 WHERE id = 3",
        "UPDATE event SET before = 9 WHERE id = 14",  # one of another episode
        "UPDATE event SET logprobs = x'663333333f3333333f' WHERE id = 1",
        "UPDATE event SET completion = x'480700' WHERE id = 1",
        "UPDATE record SET calls = 9 WHERE id = 2",
        "UPDATE episode SET reward = 7 WHERE id = 1",
        "UPDATE episode SET task = replace(task, 'GoTo', 'Goto') WHERE id = 1",
        "UPDATE episode SET outcome = '?' WHERE id = 1",
        "DELETE FROM record WHERE id = 2",
    ],
)
def test_an_episode_that_is_not_what_was_written_is_found_and_left_out(
    tmp_path: Path, statement: str
) -> None:
    run = damaged.make(tmp_path / "run")
    written = episodes_of(run)
    changed(run, statement)
    assert len(examine(run).database) == 1
    saved = salvage(run, tmp_path / "new")
    kept = episodes_of(saved.run)
    assert saved.dropped == 1 and len(kept) == damaged.EPISODES - 1
    assert all(written[key] == episode for key, episode in kept.items())
    assert examine(saved.run).sound


def test_what_a_killed_process_left_in_the_log_is_read_and_stays(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    writer = samples.python(
        """
        import os, signal, sys
        from pathlib import Path
        from palaestra.core.episode import Key
        from palaestra.store.run_folder import RunFolder
        from tests.store import samples

        run = RunFolder.open(Path(sys.argv[1]))
        run.database.finish(samples.episode(Key("rl/9", 0)))
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(run),
    )
    writer.wait()
    assert (run / f"{NAME}-wal").stat().st_size
    before = bytes_of(run)
    assert examine(run).sound and examine(run).episodes == damaged.EPISODES + 1
    assert Key("rl/9", 0) in episodes_of(salvage(run, tmp_path / "new").run)
    assert bytes_of(run) == before


def test_sound_checkpoints_and_notes_come_along_and_corrupt_ones_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged.make(tmp_path / "run")
    for name in ("good", "bad"):
        checkpoint.save(run / "checkpoints", name, {"model": {"w": torch.ones(9)}}, {"step": 1})
    weights = run / "checkpoints" / "bad" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    Notes.open(run).add(Key("rl/1", 0), "well done", {"good": "yes"})
    changed(run, "UPDATE event SET body = '{' WHERE id = 3")
    assert main(["doctor", str(run), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    new = Path(shown["salvaged"]["run"])
    assert new == tmp_path / "run-salvaged"
    assert shown["salvaged"]["left"] == ["checkpoints/bad"] and len(shown["faults"]) == 2
    assert checkpoint.names(new / "checkpoints") == ["good"]
    assert labelled(new) == {Key("rl/1", 0): {"good": "yes"}}
    assert main(["doctor", str(run)]) == 1
    output = capsys.readouterr().out
    assert f"saved into {tmp_path / 'run-salvaged-2'}" in output
    assert "1 more could be read only in part" in output


@pytest.mark.parametrize("damage", ["gone", "garbled", "of another version"])
def test_run_json_is_rebuilt_from_the_database(tmp_path: Path, damage: str) -> None:
    run = damaged.make(tmp_path / "run")
    file = run / "run.json"
    shown = json.loads(file.read_text())
    match damage:
        case "gone":
            file.unlink()
        case "garbled":
            file.write_bytes(b"\x80" * 50)
        case _:
            file.write_text(json.dumps({**shown, "format": 99}))
    assert main(["doctor", str(run)]) == 0
    assert json.loads(file.read_text()) == shown
    assert main(["show", str(run)]) == 0


def test_a_run_of_before_that_lost_its_run_json_began_when_its_files_say(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    shown = json.loads((run / "run.json").read_text())
    changed(run, "DELETE FROM meta WHERE name IN ('created', 'durability')")
    (run / "run.json").unlink()
    assert main(["doctor", str(run)]) == 0
    again = json.loads((run / "run.json").read_text())
    assert shown["created"][:10] == again["created"][:10] and shown["format"] == again["format"]


def test_where_nothing_is_left_it_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged.make(tmp_path / "run")
    (run / NAME).write_bytes(b"")
    assert main(["doctor", str(run)]) == 2
    assert "Nothing of the record" in capsys.readouterr().err
    (run / NAME).unlink()
    assert main(["doctor", str(run)]) == 1
    assert "run.sqlite is missing" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "nowhere")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nothing_is_written_over_and_no_active_run_is_examined(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists already"):
        salvage(run, tmp_path / "there")
    with RunFolder.open(run), pytest.raises(RunLocked, match="being worked on by process"):
        examine(run)


def test_a_full_disk_leaves_nothing_half_saved(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    changed(run, "UPDATE event SET body = '{' WHERE id = 3")
    code = """
        import resource, signal, sys
        from pathlib import Path
        from palaestra.core.errors import StorageFull
        from palaestra.store.salvage import salvage

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, resource.RLIM_INFINITY))
        try:
            salvage(Path(sys.argv[1]), Path(sys.argv[2]))
        except StorageFull as error:
            print(str(error), Path(sys.argv[2]).exists())
        """
    output = samples.python(code, str(run), str(tmp_path / "new")).communicate()[0]
    assert "are free there" in output and output.endswith("False\n")
