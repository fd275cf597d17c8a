"""Group commit: sessions share transactions, and none sees what is not stored."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import AgentFault
from palaestra.core.message import ToolCall
from palaestra.store.database import Database
from palaestra.store.group_commit import CommitGroup
from palaestra.store.header import events_in_order
from tests.chosen import mostly_slow
from tests.store import samples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = Database.open(path)
    yield database
    database.close()


async def roll_out(database: Database, episode: Episode) -> None:
    """Store an episode as a session does: one event after the other."""
    for event in events_in_order(episode):
        saved = database.append(episode.key, event)
        assert saved is not None
        await saved
    saved = database.finish(episode)
    assert saved is not None
    await saved


# ── the group itself ─────────────────────────────────────────────────────────


def test_appends_in_one_round_share_a_commit() -> None:
    commits: list[int] = []
    waiting = 0

    def commit() -> None:
        nonlocal waiting
        commits.append(waiting)
        waiting = 0

    async def run() -> None:
        group = CommitGroup(commit)

        async def session(turns: int) -> None:
            nonlocal waiting
            for _ in range(turns):
                waiting += 1
                joined = group.join()
                assert joined is not None
                await joined

        await asyncio.gather(*(session(5) for _ in range(100)))

    asyncio.run(run())
    assert commits == [100] * 5


def test_outside_of_an_event_loop_each_write_is_committed_at_once() -> None:
    commits: list[int] = []
    group = CommitGroup(lambda: commits.append(1))
    assert group.join() is None and group.join() is None
    assert commits == [1, 1]


def test_a_failed_commit_reaches_all_waiting_callers_and_the_next_may_succeed() -> None:
    problems = [OSError("full")]

    def commit() -> None:
        if problems:
            raise problems.pop()

    async def run() -> None:
        group = CommitGroup(commit)
        joined = [group.join() for _ in range(3)]
        results = await asyncio.gather(*(f for f in joined if f), return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        again = group.join()
        assert again is not None
        await again

    asyncio.run(run())


def test_a_caller_cancelled_while_waiting_affects_no_other() -> None:
    async def run() -> None:
        group = CommitGroup(lambda: None)

        async def wait() -> None:
            joined = group.join()
            assert joined is not None
            await joined

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(r) for r in results] == [type(None), asyncio.CancelledError, type(None)]

    asyncio.run(run())


# ── in the database ──────────────────────────────────────────────────────────


def test_an_event_is_stored_before_its_session_continues(database: Database, path: Path) -> None:
    reader = Database.open(path, readonly=True)
    key = Key("rl", 0)

    async def run() -> None:
        for index in range(5):
            saved = database.append(key, samples.step(index))
            assert len(reader.past(key)) == index
            assert saved is not None
            await saved
            assert len(reader.past(key)) == index + 1

    asyncio.run(run())
    reader.close()


def test_sessions_that_write_at_once_are_kept_apart(database: Database) -> None:
    keys = [Key("rl", group, member) for group in range(20) for member in range(5)]

    async def run() -> None:
        await asyncio.gather(*(roll_out(database, samples.episode(key)) for key in keys))

    asyncio.run(run())
    assert database.episodes("rl") == [samples.episode(key) for key in keys]
    assert all(database.past(key) == events_in_order(samples.episode(key)) for key in keys)


def test_what_waits_is_seen_by_its_own_process(database: Database) -> None:
    key = Key("rl", 0)

    async def run() -> None:
        events = events_in_order(samples.episode(key))
        for event in events:
            database.append(key, event)
        assert database.past(key) == events
        database.finish(samples.episode(key))
        assert database.episode(key) == samples.episode(key)
        assert database.phases() == ["rl"]

    asyncio.run(run())


def test_what_cannot_be_recorded_is_refused_alone(database: Database) -> None:
    good, bad = Key("rl", 0), Key("rl", 1)
    rubbish = Action("", ToolCall("f", {"x": object()}))

    async def run() -> None:
        saved = database.append(good, samples.step(0))
        step = samples.step(0)
        with pytest.raises(AgentFault):
            database.append(bad, type(step)(0, 0, rubbish, step.transition, step.before))
        assert saved is not None
        await saved

    asyncio.run(run())
    assert database.past(good) == [samples.step(0)] and database.past(bad) == []


def test_a_closed_database_has_all_that_was_taken_down(path: Path) -> None:
    database = Database.open(path)

    async def run() -> None:
        database.append(Key("rl", 0), samples.step(0))
        database.close()

    asyncio.run(run())
    again = Database.open(path)
    assert again.past(Key("rl", 0)) == [samples.step(0)]
    again.close()


moves = st.lists(
    st.tuples(
        st.sampled_from(["call", "step", "finish", "forget", "past", "round", "episode", "fresh"]),
        st.integers(0, 2),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=40)
@given(moves)
def test_any_order_of_writes_and_reads_gives_what_a_list_would(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("group") / "run.sqlite"
    events: dict[int, list[Event]] = {0: [], 1: [], 2: []}
    finished: dict[int, Episode] = {}

    async def run() -> None:
        database = Database.open(path)
        for move, group in moves:
            key, happened = Key("rl", group), events[group]
            match move:
                case "call" | "step":
                    index = sum(isinstance(e, type(samples.step(0))) for e in happened)
                    event = samples.call(len(happened) - index) if move == "call" else None
                    happened.append(event or samples.step(index))
                    database.append(key, happened[-1])
                case "finish":
                    whole = samples.episode(key, turns=0)
                    calls = [e for e in happened if isinstance(e, type(samples.call(0)))]
                    steps = [e for e in happened if isinstance(e, type(samples.step(0)))]
                    whole = _with(whole, calls, steps)
                    finished[group] = whole
                    database.finish(whole)
                case "forget":
                    database.forget(key)
                    events[group] = []
                    finished.pop(group, None)
                case "past":
                    assert database.past(key) == happened
                case "round":
                    await asyncio.sleep(0)
                case "episode":
                    found = database.episode(key)
                    assert (found is None) == (group not in finished)
                case "fresh":
                    database.close()
                    database = Database.open(path)
        assert [database.past(Key("rl", group)) for group in events] == list(events.values())
        assert [e.key.group for e in database.episodes("rl")] == sorted(finished)
        database.close()

    asyncio.run(run())


def _with(episode: Episode, calls: list[Event], steps: list[Event]) -> Episode:
    return Episode(
        episode.key,
        episode.task,
        episode.agent,
        episode.observation,
        tuple(calls),  # type: ignore[arg-type]
        tuple(steps),  # type: ignore[arg-type]
        episode.outcome,
        episode.usage,
    )


# ── when the process ends ────────────────────────────────────────────────────

SESSIONS = """
import asyncio, sys
from pathlib import Path
from palaestra.core.agent import Agent
from palaestra.core.message import assistant, system, user
from palaestra.core.episode import Key
from palaestra.core.task import Task
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.database import Database
from tests.core.small import Stairs

class Telling(Agent):
    name = "telling"

    async def run(self, session):
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            print(session.key.group, "call", len(session.graph.calls), flush=True)
            transition = await session.act(reply.text)
            print(session.key.group, "step", len(session.steps), flush=True)
            messages += [assistant(reply.text), user(transition.observation.text)]

class Uneven(ScriptedModel):
    async def generate(self, prompt):
        for _ in range(prompt.seed % 5):
            await asyncio.sleep(0)
        return await super().generate(prompt)

async def world(id):
    return Stairs(height=7)

rollout = Rollout(
    Telling(), world, {"agent": Uneven(lambda messages: "up")}, concurrency=16,
    store=Database.open(Path(sys.argv[1])),
)
jobs = [Job(Key("rl", i), Task(f"t/{i}", "stairs", i)) for i in range(400)]
asyncio.run(rollout.run(jobs))
"""


@pytest.mark.parametrize("seed", mostly_slow(range(2), 1))
def test_what_an_agent_has_seen_survives_a_kill(path: Path, seed: int) -> None:
    process = samples.python(SESSIONS, str(path))
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(random.Random(seed).randrange(20, 2000))]
    os.kill(process.pid, signal.SIGKILL)
    lines += [line for line in process.stdout if line.endswith("\n")]
    process.wait()
    seen: dict[tuple[int, str], int] = {}
    for line in lines:
        group, kind, count = line.split()
        seen[int(group), kind] = int(count)
    database = Database.open(path)
    for (group, kind), count in seen.items():
        past = database.past(Key("rl", group))
        stored = sum((kind == "step") == isinstance(e, type(samples.step(0))) for e in past)
        assert count <= stored <= count + 1  # at most the turn in flight is there and not yet seen
    database.close()


FULL = """
import asyncio, json, resource, signal, sys
from pathlib import Path
from palaestra.core.episode import Key
from palaestra.core.errors import StorageFull
from palaestra.store.database import Database
from tests.store import samples

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
database = Database.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))

async def session(group):
    count = 0
    try:
        while True:
            await database.append(Key("rl", group), samples.step(count))
            count += 1
    except StorageFull:
        return count

async def main():
    return await asyncio.gather(*(session(group) for group in range(10)))

counts = asyncio.run(main())
stored = [len(database.past(Key("rl", group))) for group in range(10)]
print(json.dumps([counts, stored]))
"""


def test_a_full_disk_stops_every_session_after_what_is_stored(path: Path) -> None:
    process = samples.python(FULL, str(path))
    answer, _ = process.communicate()
    counts, stored = json.loads(answer)
    assert counts == stored and min(counts) > 5
