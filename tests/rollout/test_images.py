"""Images and snapshots between processes: as bytes, whole, and once in the run's store."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Environment,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Image, ToolCall, assistant
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import SAVED, STARTED, STEPPED, LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker import Request, Verb
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.store.run_folder import RunFolder

MEGABYTE = 2**20
FRAME = 1024  # bytes of everything but images and snapshots
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
ID = f"{__name__}:Gallery"
TASK = Task("test/0", ID, seed=0)


def picture(number: int) -> Image:
    """A picture of a megabyte, or so, whose bytes are no text."""
    start = JPEG if number % 2 else PNG
    noise = hashlib.shake_256(bytes([number])).digest(MEGABYTE)
    return Image.of(start + noise)


class Gallery(Environment, typical_turns=2):
    """Shows two pictures at first, the second one again and another at each look."""

    instructions = "Look at the pictures."
    tools = (Tool("look", "Look.", {"type": "object", "properties": {}}),)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.looks = 0
        return Observation("Two pictures.", images=(picture(0), picture(1)))

    def step(self, action: Action) -> Transition:
        self.looks += 1
        seen = Observation("Two more.", images=(picture(1), picture(1 + self.looks)))
        done = self.looks == 2
        return Transition(seen, reward=1.0 * done, terminated=done, success=done)


async def rolled_out(environment: AsyncEnvironment, store: RunFolder) -> Episode:
    async def make(name: str) -> AsyncEnvironment:
        return environment

    replies = [assistant("", tool_calls=[ToolCall("look", {}, f"call{n}")]) for n in range(2)]
    rollout = Rollout(
        agent=make_agent("react"),
        make_environment=make,
        models={"agent": ScriptedModel(replies)},
        seed=1,
        store=store.database,
    )
    (episode,) = await rollout.run([Job(Key("test", 0), TASK)])
    return episode


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the same episode, with the environment here and in a worker."""
    folder = tmp_path_factory.mktemp("runs")

    async def run() -> None:
        with RunFolder.create(folder / "here", {}) as here:
            await rolled_out(LocalEnvironment(Gallery()), here)
        async with WorkerPool(1) as pool:
            with RunFolder.create(folder / "worker", {}) as hosted:
                await rolled_out(await pool.make(ID), hosted)

    asyncio.run(run())
    return folder / "here", folder / "worker"


def recorded(folder: Path) -> Episode:
    with RunFolder.read(folder) as opened:
        (episode,) = opened.database.episodes("test")
        return episode


def shown(episode: Episode) -> list[tuple[str, str, bytes]]:
    """Every picture of an episode, in messages and observations."""
    assert episode.observation is not None
    found = list(episode.observation.images)
    for step in episode.steps:
        found += step.transition.observation.images
    for call in episode.calls:
        found += [image for message in call.messages for image in message.images]
    return [(image.sha256, image.media_type, image.data) for image in found]


def test_images_of_a_worker_are_those_of_this_process(runs: tuple[Path, Path]) -> None:
    here, worker = map(recorded, runs)
    assert here.outcome.solved and worker.outcome.solved
    expected = [picture(number).sha256 for number in (0, 1, 1, 2, 1, 3)]  # of observations
    assert [hash for hash, _, _ in shown(worker)][:6] == expected
    assert shown(worker) == shown(here)
    for hash, _, data in shown(worker):
        assert hashlib.sha256(data).hexdigest() == hash


def test_images_are_in_observations_and_in_tool_results(runs: tuple[Path, Path]) -> None:
    first, second = recorded(runs[1]).calls
    assert len(first.messages[-1].images) == 2
    (result,) = second.messages
    assert result.role == "tool" and result.tool_results[0].id == "call0"
    assert result.images == (picture(1), picture(2))


def test_the_bytes_of_an_image_are_once_in_the_run(runs: tuple[Path, Path]) -> None:
    for folder in runs:
        images = {image for image, _, _ in shown(recorded(folder))}
        assert len(images) == 4
        with closing(sqlite3.connect(folder / "run.sqlite")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            rows = database.execute("SELECT data FROM blob WHERE length(data) > 9999").fetchall()
        assert sorted(data for (data,) in rows) == sorted(picture(n).data for n in range(4))
        size = (folder / "run.sqlite").stat().st_size
        assert 4 * MEGABYTE < size < 4 * MEGABYTE + 200_000


def test_an_image_between_processes_is_as_long_as_its_bytes() -> None:
    images = (picture(0), picture(1))
    size = sum(image.size for image in images)
    started = STARTED.dump((Observation("Two.", images=images), Signals(), None))
    assert size < len(started) < size + FRAME
    transition = Transition(Observation("Two.", images=images), 0.0)
    assert size < len(STEPPED.dump((transition, Signals(), None))) < size + FRAME


def test_a_snapshot_between_processes_is_as_long_as_its_bytes() -> None:
    """As base64 it had 4/3 of the length, in both directions."""
    snapshot = picture(0).data
    assert SAVED.dump(snapshot) == SAVED.load(snapshot) == snapshot
    body = Request(1, Verb.RESTORE, snapshot=snapshot).dump()
    assert len(snapshot) < len(body) < len(snapshot) + FRAME
    with pytest.raises(ValueError, match="a str, not bytes"):
        SAVED.dump("snapshot")  # type: ignore[arg-type]


def test_requests_without_a_snapshot_stay_as_they_are() -> None:
    request = Request(3, Verb.STEP, action=Action("go"))
    assert Request.load(request.dump()) == request
    assert Request.load(replace(request, verb=Verb.CLOSE, action=None).dump()).verb is Verb.CLOSE
