"""A run of the format before, as the code of that time recorded it, brought into the present one.

`format-2.tar.xz` holds it: three episodes with tokens (one of them calls tools), one that sees
pictures, and one that was cut off after two of its four turns.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tarfile
from base64 import b64decode
from contextlib import closing
from pathlib import Path

import pytest

from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.budget import Budget
from palaestra.core.episode import Key
from palaestra.core.errors import DamagedRun, RunVersionMismatch
from palaestra.core.message import Image, Text
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.examine import examine
from palaestra.store.run_folder import RunFolder
from palaestra.store.schema import FORMAT

SEEN, CUT = Key("test/0", 0, 0), Key("test/0", 1, 0)
IMAGE = "babyai/GoToLocalS5N2?observation=image"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    with tarfile.open(Path(__file__).with_name("format-2.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


def bodies(run: Path, table: str, column: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(run / "run.sqlite")) as connection:
        rows = connection.execute(f"SELECT {column} FROM {table} ORDER BY id").fetchall()
    return [json.loads(body) for (body,) in rows]


def test_all_that_was_recorded_is_there_to_the_letter(old: Path) -> None:
    events = bodies(old, "event", "body")
    pictures = [e["transition"]["observation"]["image"] for e in events if "transition" in e]
    with closing(sqlite3.connect(old / "run.sqlite")) as connection:
        packed = connection.execute("SELECT prompt, completion, logprobs FROM event").fetchall()
    with RunFolder.open(old) as run:
        database = run.database
        assert database.about()["format"] == str(FORMAT)
        again = database._connection.execute("SELECT prompt, completion, logprobs FROM event")
        assert again.fetchall() == packed
        episodes = [e for phase in database.phases() for e in database.episodes(phase)]
        output = [call for episode in episodes for call in episode.calls]
        calls = [event for event in events if "reply" in event][: len(output)]
        assert len(output) == 11
        for call, then in zip(output, calls, strict=True):
            assert [m.text for m in call.messages] == [m["content"] for m in then["messages"]]
            assert call.reply.parts == (Text(then["reply"]["content"]),)
        seen = database.episode(SEEN)
        assert seen is not None and seen.observation is not None
        assert [len(step.transition.observation.images) for step in seen.steps] == [1] * 4
        shown = [step.transition.observation.images[0] for step in seen.steps]
        wanted = [Image.of(b64decode(str(picture))) for picture in pictures if picture]
        assert [image.data for image in shown] == [image.data for image in wanted[:4]]
        assert [m.images for c in seen.calls[1:] for m in c.messages if m.role == "user"] == [
            (image,) for image in shown[:3]
        ]
        blobs = database._connection.execute("SELECT count(*) FROM blob").fetchone()[0]
        assert blobs == len({*shown, *seen.observation.images})  # each once, wherever it is seen
        assert database.metrics("rl") == [(0, {"loss": 0.5})]
    assert json.loads((old / "run.json").read_text())["format"] == FORMAT
    assert examine(old).sound


def test_a_reader_of_the_previous_format_gets_the_migration_command(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (old / "run.sqlite").read_bytes()
    with pytest.raises(RunVersionMismatch, match=r"format 2.*palaestra doctor .* --migrate"):
        RunFolder.read(old)
    assert (old / "run.sqlite").read_bytes() == before
    assert main(["doctor", str(old), "--migrate"]) == 0
    assert f"is of format {FORMAT} now" in capsys.readouterr().out
    with RunFolder.read(old) as run:
        assert len(run.database.summaries()) == 4
    assert main(["doctor", str(old), "--migrate"]) == 0
    assert "already" in capsys.readouterr().out


def test_a_kill_between_the_record_and_run_json_is_made_up_for(old: Path, tmp_path: Path) -> None:
    about = (old / "run.json").read_text()
    RunFolder.open(old).close()
    (old / "run.json").write_text(about)
    RunFolder.open(old).close()
    assert json.loads((old / "run.json").read_text())["format"] == FORMAT


def test_what_cannot_be_brought_up_stays_as_it_is(old: Path) -> None:
    with closing(sqlite3.connect(old / "run.sqlite")) as connection:
        last = connection.execute("SELECT max(id) FROM event").fetchone()
        connection.execute("UPDATE event SET body = '{\"index\":1}' WHERE id = ?", last)
        connection.commit()
    kept = shutil.copytree(old, old.with_name("kept"))
    with pytest.raises(DamagedRun):
        RunFolder.open(old)
    assert bodies(old, "event", "body") == bodies(kept, "event", "body")
    with pytest.raises(RunVersionMismatch):
        RunFolder.read(old)


def test_an_episode_interrupted_in_the_previous_format_resumes(old: Path) -> None:
    async def roll_out(past: list[object]) -> object:
        world = LocalEnvironment(registry.make(IMAGE))
        (task,) = registry.tasks(IMAGE).take(Split.TEST, 1)
        words = ScriptedModel(["left", "forward", "left", "right"])
        session = Session(
            CUT, task, world, make_agent("direct"), {"agent": words},
            budget=Budget(turns=4), seed=5, past=past,
        )  # fmt: skip
        return await session.run()

    with RunFolder.open(old) as run:
        past = run.database.past(CUT)
    assert len(past) == 4
    whole = asyncio.run(roll_out([]))
    resumed = asyncio.run(roll_out(list(past)))
    assert resumed.steps[2:] and [s.transition for s in resumed.steps] == [
        s.transition for s in whole.steps
    ]
    assert [c.messages for c in resumed.calls] == [c.messages for c in whole.calls]
