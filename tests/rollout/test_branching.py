"""Worlds that branch: a saved state is the same state in a worker, in this process, in a trial."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.environments.families.probe.environment import Probe
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.worker import Request, Verb
from palaestra.rollout.worker_pool import WorkerPool
from tests.processes import children_with
from tests.rollout import faulty

SEA = "probe/sea-4"
TASK = Task("train/5", SEA, 5)


async def branches(world: AsyncEnvironment) -> list[Any]:
    """Return all observations on two branches from one state."""
    seen: list[Any] = [await world.reset(TASK), await world.step(Action("ping"))]
    saved = await world.snapshot()
    for word in ("ping", "pong"):
        seen.append(await world.restore(saved))
        seen += [await world.step(Action(word)) for _ in range(3)]
    seen.append(await world.restore(saved))
    seen.append([await world.oracle(), await world.admissible()])
    return seen


async def end_workers() -> None:
    for worker in children_with("palaestra.rollout.worker"):
        worker.kill()
    await asyncio.sleep(0.3)


class Searcher(Agent):
    """Tries both words and does the one that led deeper; ends its worker in the first trial."""

    name = "searcher"

    def __init__(self, *, harm: bool = False) -> None:
        self.harm = harm

    async def run(self, session: Session) -> None:
        while not session.over:
            found: dict[str, float] = {}
            async with session.trial() as trial:
                home = await trial.save()
                for word in ("ping", "pong"):
                    await trial.back(home)
                    await trial.act(word)
                    found[word] = trial.signals.progress or 0.0
                    if self.harm and not session.steps:
                        await end_workers()
            await session.act(max(found, key=lambda word: found[word]))


async def roll_out(world: AsyncEnvironment, agent: Agent) -> Episode:
    return await Session(Key("test", 0), TASK, world, agent, {}).run()


def test_snapshots_pass_through_the_frames_of_a_worker_as_they_are() -> None:
    request = Request(1, Verb.RESTORE, snapshot=bytes(range(256)))
    assert Request.load(request.dump()) == request
    assert Request.load(replace(request, snapshot=b"").dump()).snapshot == b""


def test_a_world_in_a_worker_branches_as_one_in_this_process() -> None:
    async def run() -> None:
        async with WorkerPool(1) as pool:
            hosted, local = await pool.make(SEA), LocalEnvironment(Probe("sea-4"))
            assert hosted.deterministic and local.deterministic
            assert await branches(hosted) == await branches(local)

            # a restored world that is lost with its worker comes back to what was restored
            await hosted.reset(TASK)
            await hosted.step(Action("ping"))
            saved = await hosted.snapshot()
            await hosted.step(Action("pong"))
            signals = await hosted.restore(saved)
            seen = await hosted.step(Action("ping"))
            await end_workers()
            assert len(await hosted.oracle()) == 2 and pool.restarts == 1
            assert await hosted.restore(saved) == signals
            assert await hosted.step(Action("ping")) == seen

            # what is no snapshot is refused, and the world stands where it stood
            with pytest.raises(InputError, match="not a snapshot of 'probe/sea-4'"):
                await hosted.restore(b"rubbish")
            assert len(await hosted.oracle()) == 2

            # a caller cancelled during a restore finds the environment unchanged
            leaving = asyncio.create_task(hosted.restore(saved))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            assert len(await hosted.oracle()) == 2

            # a search whose worker ends in the middle of a trial finds the same path
            sound = await roll_out(local, Searcher())
            harmed = await roll_out(hosted, Searcher(harm=True))
            assert sound.outcome == harmed.outcome == Outcome.success()
            assert [s.action for s in sound.steps] == [s.action for s in harmed.steps]
            assert sound.usage.tried == harmed.usage.tried == 8 and pool.restarts > 1

            plain = await pool.make(f"{faulty.__name__}:Counting")
            await plain.reset(TASK)
            with pytest.raises(CapabilityMissing, match="does not declare 'snapshot'"):
                await plain.snapshot()

    asyncio.run(run())
