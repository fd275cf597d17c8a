"""Sessions on worker processes that are killed, frozen, different or too few; without Ray."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from palaestra.agents.registry import make_agent
from palaestra.cluster import fleet, supervisor
from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.placement import MACHINE_GONE, Kind
from palaestra.cluster.remote_session import RemoteSession
from palaestra.cluster.worker_messages import Call
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import ClusterFailed, InputError
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Split
from palaestra.environments.registry import tasks
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.database import Database
from palaestra.store.process_roster import Roster
from tests.cluster.processes import SERVE, Logged, Processes, Thawing
from tests.rollout import faulty
from tests.training.runs import essence

ENVIRONMENT = "babyai/GoToObjS6"


class Walker(Model):
    """A model of the driver's, whose replies depend on the prompt's seed alone; it is counted."""

    name = "walker"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.asked, self.slowest = seconds, 0, 0.0

    async def generate(self, prompt: Prompt) -> Generation:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        word = random.Random(prompt.seed).choice(["left", "right", "forward"])
        return given_generation(word, prompt, self)


def jobs(groups: int, members: int = 2, environment: str = ENVIRONMENT) -> list[Job]:
    found = tasks(environment).take(Split.TRAIN, groups)
    return [Job(Key("x", g, m), task) for g, task in enumerate(found) for m in range(members)]


def rollout(model: Model, **options: Any) -> Rollout:
    async def here(id: str) -> LocalEnvironment:
        from palaestra.environments.registry import make

        return LocalEnvironment(make(id))

    agent = make_agent("direct")
    return Rollout(agent, here, {"agent": model}, budget=Budget(turns=12), **options)


@asynccontextmanager
async def workers(
    launcher: Processes,
    say: Callable[[str], None] = print,
    *,
    least: int = 2,
    most: int = 2,
    processes: int = 0,
    **options: Any,
) -> Any:
    kind = worker_kind(least, most)
    async with Workers(launcher, say, kind, processes=processes, **options) as found:
        yield found


def alike(first: list[Episode], second: list[Episode]) -> bool:
    return [essence(e) for e in first] == [essence(e) for e in second]


@pytest.mark.slow
def test_sessions_elsewhere_leave_the_record_of_sessions_here(tmp_path: Path) -> None:
    async def run() -> None:
        for model in (Walker(), RandomModel(make_agent("direct"))):  # asked here, and there
            here = await rollout(model).run(jobs(4))
            with_store = Database.open(tmp_path / f"{model.name}.sqlite")
            async with workers(Processes()) as found:
                work = replace(rollout(model), elsewhere=found.session, store=with_store)
                there = await work.run(jobs(4))
            assert alike(here, there)
            assert alike(with_store.episodes("x"), there)
            assert [e.observation for e in here] == [e.observation for e in there]
            assert [e.usage.prompt_tokens for e in here] == [e.usage.prompt_tokens for e in there]
            with_store.close()

    asyncio.run(run())


def test_a_killed_worker_costs_no_turn_and_no_model_call(tmp_path: Path) -> None:
    async def run() -> None:
        quiet, model = Walker(), Walker(0.02)
        here = await rollout(quiet).run(jobs(8))
        launcher, said, store = Processes(), list[str](), Database.open(tmp_path / "run.sqlite")
        async with workers(launcher, said.append) as found:
            work = replace(rollout(model), elsewhere=found.session, store=store)
            running = asyncio.create_task(work.run(jobs(8)))
            for _ in range(3):
                while model.asked < 20 or len(found.connected) < 2:
                    await asyncio.sleep(0.001)
                launcher.running[min(found.connected)].kill()
                await asyncio.sleep(0.15)
            there = await running
        assert sum("is lost" in line for line in said) == 3
        assert "status -9" in said[0]
        assert alike(here, there) and alike(store.episodes("x"), there)
        assert model.asked == quiet.asked
        store.close()

    asyncio.run(run())


def test_the_work_of_a_killed_worker_goes_on_within_three_seconds() -> None:
    async def run() -> None:
        model, launcher, loop = Walker(0.01), Processes(room=1), asyncio.get_running_loop()
        async with workers(launcher, least=1, most=1) as found:
            work = replace(rollout(model), elsewhere=found.session)
            running = asyncio.create_task(work.run(jobs(8)))
            while model.asked < 20:
                await asyncio.sleep(0.001)
            killed = loop.time()
            launcher.running[1].kill()
            while 1 in found.connected:
                await asyncio.sleep(0.001)
            assert loop.time() - killed < 3
            await running
        assert launcher.started == 2

    asyncio.run(run())


@pytest.mark.slow
def test_a_frozen_worker_is_replaced_and_its_late_writes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "SILENT", 3)

    async def run() -> None:
        model, launcher = Walker(0.02), Thawing()
        here = await rollout(Walker()).run(jobs(8))
        async with workers(launcher) as found:
            work = replace(rollout(model), elsewhere=found.session)
            running = asyncio.create_task(work.run(jobs(8)))
            while model.asked < 20:
                await asyncio.sleep(0.001)
            frozen = launcher.running[1].pid
            os.kill(frozen, signal.SIGSTOP)
            there = await asyncio.wait_for(running, 30)
            assert 1 not in found.connected and len(found.connected) >= 1
            os.kill(frozen, signal.SIGCONT)
            assert await asyncio.to_thread(launcher.running.pop(1).wait, 10) == 0
        assert alike(here, there)

    asyncio.run(run())


def test_five_deaths_in_five_minutes_stop_the_run_with_the_last_words() -> None:
    async def run() -> None:
        launcher = Processes(program="import sys; sys.exit('no space left')")
        with pytest.raises(ClusterFailed, match=r"Five workers died within.*no space left"):
            async with workers(launcher):
                pass

    asyncio.run(run())


def test_starts_that_are_lost_with_their_machine_do_not_stop_the_run() -> None:
    class Losing(Processes):
        async def start(self, kind: Kind, call: Call) -> str:
            if call.birth > 7:
                return await super().start(kind, call)
            self.started += 1
            return MACHINE_GONE

    async def run() -> None:
        launcher = Losing()
        async with workers(launcher) as found:
            assert launcher.started == 9 and found.roster.deaths == 0

    asyncio.run(run())


@pytest.mark.slow
def test_a_machine_with_other_versions_is_refused_and_named() -> None:
    async def run() -> None:
        other = "import palaestra.cluster.supervised_process as it; it.versions = lambda: "
        other += "{'palaestra': '0.0.9', 'Python': '3.14', 'torch': '2'}; "
        with pytest.raises(ClusterFailed) as failed:
            async with workers(Processes(program=other + SERVE)):
                pass
        assert f"{socket.gethostname()} has palaestra 0.0.9 instead of" in str(failed.value)
        assert "install the same versions there" in str(failed.value)

    asyncio.run(run())


def test_what_does_not_know_the_secret_is_not_read() -> None:
    async def run() -> None:
        async with workers(Processes()) as found:
            host, port = found._server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"x" * 4000)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            assert len(found.connected) == 2

    asyncio.run(run())


def test_too_few_workers_are_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SCARCE", 0.2)
    monkeypatch.setattr(supervisor, "LOOK", 0.1)

    async def run() -> None:
        said: list[str] = []

        async def wait() -> None:
            async with workers(Processes(room=1), said.append):
                pass

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(2)
        assert said == ["room for 1 of 2"] and not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


@pytest.mark.slow
def test_a_worker_that_joins_later_gets_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOOK", 0.1)

    async def run() -> None:
        launcher, model = Processes(room=1), Walker(0.02)
        async with workers(launcher, least=1) as found:
            work = replace(rollout(model, concurrency=4), elsewhere=found.session)
            running = asyncio.create_task(work.run(jobs(24)))
            launcher._room = 2
            async with asyncio.timeout(10):
                while not found.leases.load(2):
                    await asyncio.sleep(0.01)
            assert all(episode.steps for episode in await running)
            assert all(entry.done for entry in found.roster.entries)

    asyncio.run(run())


@pytest.mark.slow
def test_a_worker_that_is_asked_to_leave_hands_its_sessions_over_and_no_turn_is_redone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervisor, "LOOK", 0.1)
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    replayed: list[int] = []
    move = RemoteSession.move

    def counted(session: RemoteSession) -> None:
        replayed.append(sum(isinstance(event, Step) for event in session.events))
        move(session)

    monkeypatch.setattr(RemoteSession, "move", counted)
    work = jobs(4, environment=f"{Logged.__module__}:Logged/{ENVIRONMENT}")

    async def run() -> None:
        model, launcher, said = Walker(0.01), Processes(), list[str]()
        async with workers(launcher, said.append) as found:
            elsewhere = replace(rollout(model), elsewhere=found.session)
            running = asyncio.create_task(elsewhere.run(work))
            async with asyncio.timeout(20):
                while model.asked < 20:
                    await asyncio.sleep(0.001)
            assert found.leases.load(1)
            launcher.dismissed = {1}
            episodes = await running
            steps = sum(len(e.steps) for e in episodes)
            assert replayed and all(replayed)
            assert len((tmp_path / "steps").read_text().split()) == steps + sum(replayed)
            assert model.asked == sum(len(e.calls) for e in episodes) == steps
            assert found.leases.refused == 0 and found.roster.deaths == 0
            async with asyncio.timeout(20):
                while 1 in launcher.running:
                    await asyncio.sleep(0.01)
            assert [entry.cause for entry in found.roster.entries if entry.gone] == [
                supervisor.LEFT
            ]
            assert 3 in launcher.running  # started in its place
        assert any("worker 1 on" in line and "has left" in line for line in said)

    asyncio.run(run())


@pytest.mark.slow
def test_the_roster_says_who_is_where_and_why_one_is_gone() -> None:
    async def run() -> None:
        notes: list[Roster] = []
        roster = Roster()
        launcher, model = Processes(), Walker(0.3)  # so that sessions outlast a beat or two
        note = lambda: notes.append(deepcopy(roster))  # noqa: E731
        async with workers(launcher, roster=roster, note=note) as found:
            work = replace(rollout(model), elsewhere=found.session)
            running = asyncio.create_task(work.run(jobs(8, members=4)))
            async with asyncio.timeout(20):
                while not (notes and all(entry.load for entry in notes[-1].entries)):
                    await asyncio.sleep(0.01)
            pids = {number: process.pid for number, process in launcher.running.items()}
            assert {e.number: e.pid for e in notes[-1].entries} == pids
            assert all(e.machine == socket.gethostname() for e in notes[-1].entries)
            launcher.running[1].kill()
            await running
        last = notes[-1]
        assert last.deaths == 1 and not last.present
        gone = {entry.number: entry for entry in last.entries}
        assert "status -9" in gone[1].cause and gone[1].moved > 0
        assert gone[2].cause == "the run needs it no more"
        assert sum(entry.done for entry in last.entries) == 32

    asyncio.run(run())


def test_a_cluster_that_cannot_be_asked_any_more_stops_the_run() -> None:
    class Headless(Processes):
        def room(self, kind: Kind) -> int:
            if self.started:
                raise RuntimeError("the head is gone")
            return super().room(kind)

    async def run() -> None:
        async with workers(Headless()) as found:
            work = replace(rollout(Walker(0.05)), elsewhere=found.session)
            await work.run(jobs(32))

    with pytest.raises(ClusterFailed, match=r"cannot be asked any more .*the head is gone"):
        asyncio.run(run())


def test_a_quorum_stops_the_rest_of_a_group_elsewhere_too(tmp_path: Path) -> None:
    async def run() -> None:
        store = Database.open(tmp_path / "run.sqlite")
        async with workers(Processes()) as found:
            work = replace(rollout(Walker(0.01), needed=2), elsewhere=found.session, store=store)
            episodes = await work.run(jobs(2, members=6))
            again = await work.run(jobs(2, members=6))  # workers serve on
        cancelled = [e for e in episodes if e.outcome.was_cancelled]
        assert len([e for e in episodes if e.outcome.scored]) >= 4
        assert alike(episodes, again) and alike(store.episodes("x"), episodes)
        assert all(e.usage.turns == len(e.steps) for e in cancelled)
        store.close()

    asyncio.run(run())


def test_a_world_that_breaks_is_a_fault_of_its_episode_alone() -> None:
    names = ["Counting", "Raising/reset", "Crashing/reset", "Counting", "Counting"]

    async def run(processes: int) -> list[str]:
        async with workers(Processes(), processes=processes) as found:
            work = replace(rollout(Walker()), elsewhere=found.session)
            (task,) = tasks(ENVIRONMENT).take(Split.TRAIN, 1)
            asked = [
                Job(Key("x", n), replace(task, environment=f"{faulty.__name__}:{name}"))
                for n, name in enumerate(names)
            ]
            return [str(e.outcome) for e in await work.run(asked)]

    healthy, raising, crashing, *rest = asyncio.run(run(processes=1))
    assert "environment" in raising and "environment" in crashing
    assert {healthy, *rest} == {"truncated(turns)"}


def test_an_environment_that_a_machine_lacks_is_named() -> None:
    async def run() -> None:
        async with workers(Processes(room=1), least=1) as found:
            (job,) = jobs(1, members=1)
            job = replace(job, task=replace(job.task, environment="probe/unknown"))
            with pytest.raises(InputError, match="no Probe environment 'unknown'"):
                await replace(rollout(Walker()), elsewhere=found.session).run([job])

    asyncio.run(run())


def test_an_agent_that_remembers_episodes_is_refused() -> None:
    async def run() -> None:
        async with workers(Processes(room=1), least=1) as found:
            remembers = replace(
                rollout(Walker()), agent=make_agent("reflexion"), elsewhere=found.session
            )
            with pytest.raises(InputError, match="remembers earlier episodes"):
                await remembers.run(jobs(1))

    asyncio.run(run())


def test_a_worker_needs_no_torch_and_little_memory_and_ends_with_its_driver() -> None:
    async def run() -> list[int]:
        launcher = Processes()
        async with workers(launcher) as found:
            work = replace(rollout(Walker()), elsewhere=found.session)
            await work.run(jobs(4))
            pids = [process.pid for process in launcher.running.values()]
            for pid in pids:
                assert psutil.Process(pid).memory_info().rss < 200 * 2**20
                assert "torch" not in Path(f"/proc/{pid}/maps").read_text()
            for birth in list(launcher.running):
                launcher.running.pop(birth)  # so that it is not killed
        return pids

    pids = asyncio.run(run())
    psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=10)
    left = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]
    assert not left
