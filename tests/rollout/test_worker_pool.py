"""Environments in worker processes: a fault reaches only the environment that caused it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.episode import Key
from palaestra.core.errors import (
    EnvironmentFault,
    InfrastructureFault,
    InputError,
    MissingSystemPart,
    UnknownName,
    WorkersUnavailable,
)
from palaestra.core.task import Task
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout import worker_handle
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker import ALLOWANCE, REQUEST, Request, Verb, framed
from palaestra.rollout.worker_pool import WorkerPool
from tests.chosen import mostly_slow
from tests.processes import children_with
from tests.rollout import faulty

T = TypeVar("T")

FAULTY = faulty.__name__
COUNTING = f"{FAULTY}:Counting"
WORDS = ("3", "-4", "what?", "10", "1", "2", "7", "5", "5", "6", "8")


def task(seed: int = 5) -> Task:
    return Task(f"train/{seed}", "counting", seed)


async def episode(world: AsyncEnvironment, seed: int, words: tuple[str, ...] = WORDS) -> list[Any]:
    """Everything that a session would see of an episode; other worlds run in between."""
    seen: list[Any] = [await world.reset(task(seed))]
    for word in words:
        seen.append(await world.step(Action(word)))
    await world.close()
    return seen


async def fault(episode: Awaitable[Any]) -> EnvironmentFault:
    with pytest.raises(EnvironmentFault) as caught:
        await episode
    return caught.value


def pooled(
    use: Callable[[WorkerPool], Coroutine[Any, Any, T]],
    count: int = 1,
    memory: int | None = None,
    timeout: float = 30.0,
) -> T:
    async def run() -> T:
        async with WorkerPool(count, timeout, memory) as pool:
            return await use(pool)

    return asyncio.run(run())


def expected(seed: int) -> list[Any]:
    return asyncio.run(episode(LocalEnvironment(faulty.Counting()), seed))


def workers_of(pid: int) -> list[psutil.Process]:
    return children_with("palaestra.rollout.worker", pid)


def dying_starts(folder: Path, times: int) -> Callable[[], int]:
    """Let the first workers that find the folder kill themselves while they start, up to a number.

    Returns how many have started.
    """
    lines = [
        "import os, pathlib, sys",
        "if 'palaestra.rollout.worker' in sys.orig_argv:",
        f"    starts = pathlib.Path({str(folder)!r})",
        "    count = len(list(starts.glob('start-*')))",
        "    (starts / f'start-{count}').touch()",
        f"    if count < {times}:",
        "        os.kill(os.getpid(), 9)",
    ]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return lambda: len(list(folder.glob("start-*")))


def gone(pids: list[int], seconds: float = 15.0) -> bool:
    """Whether all processes end in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        alive = [pid for pid in pids if psutil.pid_exists(pid)]
        if all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in alive):
            return True
        time.sleep(0.05)
    return False


# ── the ordinary case ────────────────────────────────────────────────────────


def test_a_hosted_world_is_like_a_local_one() -> None:
    async def use(pool: WorkerPool) -> None:
        world, local = await pool.make(COUNTING), LocalEnvironment(faulty.Counting())
        assert world.instructions == local.instructions
        assert world.tools == local.tools
        assert world.capabilities == local.capabilities
        assert await world.reset(task()) == await local.reset(task())
        assert await world.oracle() == await local.oracle()
        assert await world.admissible() == await local.admissible()
        assert await episode(world, 9) == await episode(local, 9)

    pooled(use)


def test_hundreds_of_worlds_run_on_two_workers() -> None:
    async def use(pool: WorkerPool) -> list[list[Any]]:
        async def one(seed: int) -> list[Any]:
            return await episode(await pool.make(COUNTING), seed)

        return await asyncio.gather(*(one(seed) for seed in range(300)))

    seen = pooled(use, count=2)
    assert seen == [expected(seed) for seed in range(300)]


def test_worlds_go_to_the_least_loaded_worker() -> None:
    async def use(pool: WorkerPool) -> set[str]:
        made = [await pool.make(f"{FAULTY}:Surroundings") for _ in range(4)]
        await made[0].close()
        await made[2].close()
        made += [await pool.make(f"{FAULTY}:Surroundings") for _ in range(2)]
        seen = [(await made[i].reset(task()))[0].text.split("|")[0] for i in (1, 3, 4, 5)]
        assert seen[0] == seen[1] and seen[2] == seen[3]
        return set(seen)

    assert len(pooled(use, count=2)) == 2


def test_workers_use_one_thread_and_equal_hashes_and_hide_their_import_path() -> None:
    async def use(pool: WorkerPool) -> list[str]:
        made = [await pool.make(f"{FAULTY}:Surroundings") for _ in range(2)]
        return [(await world.reset(task()))[0].text for world in made]

    one, other = (text.split("|") for text in pooled(use, count=2))
    assert one[0] != other[0] and one[3] == other[3]
    assert "'OMP_NUM_THREADS': '1'" in one[1] and "'MKL_NUM_THREADS': '1'" in one[1]
    assert f"'PYTHONPATH': {os.environ.get('PYTHONPATH')!r}" in one[1]
    assert int(one[2]) >= os.nice(0)


def test_a_printing_environment_does_not_disturb_the_protocol() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        return await episode(await pool.make(f"{FAULTY}:Printing"), 5)

    assert pooled(use) == expected(5)


def test_closing_a_world_closes_its_environment(tmp_path: Path) -> None:
    async def use(pool: WorkerPool) -> bool:
        world = await pool.make(f"{FAULTY}:Marking")
        await world.reset(Task("train/0", "x", 0, parameters={"path": str(tmp_path / "one")}))
        await world.close()
        await world.close()
        other = await pool.make(f"{FAULTY}:Marking")
        await other.reset(Task("train/0", "x", 0, parameters={"path": str(tmp_path / "two")}))
        assert (await fault(world.step(Action("1")))).kind == "step"
        return (tmp_path / "one").exists() and not (tmp_path / "two").exists()

    assert pooled(use)
    assert (tmp_path / "two").exists()  # the pool's end closes the rest


def test_a_world_can_be_reset_again() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        world = await pool.make(COUNTING)
        await world.reset(task(1))
        await world.step(Action("1"))
        return await episode(world, 5)

    assert pooled(use) == expected(5)


def test_memory_and_restarts_are_reported() -> None:
    async def use(pool: WorkerPool) -> tuple[int, int, int]:
        memory = pool.max_rss_bytes()
        world = await pool.make(f"{FAULTY}:Crashing/step")
        await fault(episode(world, 1))
        restarts = pool.restarts
        await pool.make(COUNTING)
        return memory, restarts, pool.restarts

    memory, restarts, after = pooled(use)
    assert memory > 10 * 2**20
    assert (restarts, after) == (0, 1)  # a worker is replaced when it is next needed


# ── errors of the caller ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("id", "error", "words"),
    [
        ("babyia/GoTo", UnknownName, "Did you mean 'babyai'"),
        ("no_such_module:Class", InputError, "no_such_module"),
        (f"{FAULTY}:Missing", InputError, "no class 'Missing'"),
        (f"{FAULTY}:NeedsPart/making", MissingSystemPart, "Java"),
    ],
)
def test_a_wrong_environment_is_named_as_it_would_be_here(
    id: str, error: type[InputError], words: str
) -> None:
    async def use(pool: WorkerPool) -> None:
        with pytest.raises(error, match=words) as caught:
            await pool.make(id)
        assert type(caught.value) is error
        await pool.make(COUNTING)
        assert pool.restarts == 0

    pooled(use)


def test_an_unknown_name_keeps_its_fields() -> None:
    async def use(pool: WorkerPool) -> UnknownName:
        with pytest.raises(UnknownName) as caught:
            await pool.make("babyia/GoTo")
        return caught.value

    error = pooled(use)
    assert (error.kind, error.name) == ("environment family", "babyia")
    assert "babyai" in error.known


def test_a_system_part_missed_at_the_reset_is_the_callers_error() -> None:
    async def use(pool: WorkerPool) -> None:
        world = await pool.make(f"{FAULTY}:NeedsPart")
        with pytest.raises(MissingSystemPart, match="Java"):
            await world.reset(task())

    pooled(use)


def test_workers_that_cannot_start_report_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_handle, "BACK_OFF", (0.01, 0.02))
    (tmp_path / "pydantic.py").write_text("raise ImportError('this pydantic is broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WorkersUnavailable, match="this pydantic is broken") as caught:
        pooled(lambda pool: pool.make(COUNTING))
    assert caught.value.exit_code == 2 and "3 times" in str(caught.value)


def test_a_worker_that_is_killed_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = dying_starts(tmp_path, times=2)
    monkeypatch.syspath_prepend(str(tmp_path))

    async def use(pool: WorkerPool) -> list[Any]:
        seen = await episode(await pool.make(COUNTING), 5)
        assert starts() == 3 and pool.restarts == 0
        return seen

    assert pooled(use) == expected(5)


def test_a_run_whose_workers_no_longer_start_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as if each of its episodes had broken by itself."""
    monkeypatch.setattr(worker_handle, "BACK_OFF", (0.01, 0.02))

    async def use(pool: WorkerPool) -> None:
        dying_starts(tmp_path, times=1000)
        monkeypatch.syspath_prepend(str(tmp_path))
        jobs = [Job(Key("test", n), Task(f"train/{n}", COUNTING, n)) for n in range(8)]
        agent = DirectAgent()
        [worker] = workers_of(os.getpid())
        worker.kill()
        await Rollout(agent, pool.make, {"agent": RandomModel(agent)}, concurrency=4).run(jobs)

    with pytest.raises(WorkersUnavailable, match="killed by SIGKILL"):
        pooled(use)


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        WorkerPool(0)


# ── faults, alone and in company ─────────────────────────────────────────────

RAISED = [("Raising/reset", "reset"), ("Raising/step", "step"), ("Raising/exit", "step")]
REFUSED = [
    (f"Rubbish/{name}", "rubbish")
    for name in ("reset", "none", "text", "nan", "info", "surrogate", "huge", "signals")
]
CRASHED = [(f"Crashing/{name}", "crash") for name in ("making", "reset", "step")]
HUNG = [(f"Hanging/{name}", "hang") for name in ("making", "reset", "step")]
MIXED = ["Crashing/step", "Hanging/reset", "Intruding/json", "Crashing/close", "Crashing/oracle"]
INTRUDED = [(f"Intruding/{name}", "rubbish") for name in faulty.Intruding.GARBAGE]
ALONE = mostly_slow(
    RAISED + REFUSED + CRASHED + HUNG + INTRUDED,
    *RAISED,
    ("Rubbish/nan", "rubbish"),
    ("Crashing/step", "crash"),
    ("Hanging/step", "hang"),
    ("Intruding/json", "rubbish"),
)


@pytest.mark.parametrize(("name", "kind"), ALONE)
def test_an_error_has_its_kind_and_the_pool_continues(name: str, kind: str) -> None:
    async def use(pool: WorkerPool) -> tuple[EnvironmentFault, list[Any], int]:
        async def broken() -> None:
            await episode(await pool.make(f"{FAULTY}:{name}"), 1)

        shown = await fault(broken())
        healthy = await episode(await pool.make(COUNTING), 5)
        return shown, healthy, pool.restarts

    shown, healthy, restarts = pooled(use, timeout=3.0)
    assert shown.kind == kind
    assert FAULTY in shown.detail
    assert healthy == expected(5)
    tries = 2 if name.endswith(("/making", "/reset")) else 1  # before any step
    assert restarts == (0 if (name, kind) in RAISED + REFUSED else tries)


def test_a_crash_reports_the_end_of_stderr_and_the_status() -> None:
    async def use(pool: WorkerPool) -> EnvironmentFault:
        return await fault(episode(await pool.make(f"{FAULTY}:Crashing/step"), 1))

    shown = pooled(use)
    assert "step" in shown.detail and "exit status 3" in shown.detail
    assert "about to crash" in shown.detail


def test_a_hang_reports_where_it_hangs() -> None:
    async def use(pool: WorkerPool) -> EnvironmentFault:
        return await fault(episode(await pool.make(f"{FAULTY}:Hanging/step"), 1))

    assert "faulty.py" in pooled(use, timeout=2.0).detail


LITTLE = 400 * 2**20  # bytes; a worker with nothing in it takes a tenth


def test_a_call_that_takes_too_much_memory_is_an_error_of_its_world() -> None:
    async def use(pool: WorkerPool) -> tuple[EnvironmentFault, list[Any]]:
        shown = await fault(episode(await pool.make(f"{FAULTY}:Ballooning/once"), 1))
        return shown, await episode(await pool.make(COUNTING), 5)

    shown, healthy = pooled(use, memory=LITTLE)
    assert shown.kind == "memory" and "0.39 GiB are allowed" in shown.detail
    assert healthy == expected(5)


def test_a_worker_that_leaks_is_replaced_and_its_worlds_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_handle, "MEMORY_CHECK", 0.0)
    monkeypatch.setattr(
        worker_handle, "POLL", 10.0
    )  # never during a call, which would end it as a fault

    async def use(pool: WorkerPool) -> tuple[list[Any], list[Any], int]:
        healthy = await pool.make(COUNTING)
        leaking = [await episode(await pool.make(f"{FAULTY}:Ballooning/leak"), n) for n in range(3)]
        return leaking, await episode(healthy, 5), pool.restarts

    leaking, healthy, restarts = pooled(use, memory=LITTLE)
    assert leaking == [expected(n) for n in range(3)]
    assert healthy == expected(5)
    assert restarts >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    mostly_slow(
        [
            [name for name, _ in CRASHED],
            ["Hanging/making", "Hanging/reset", "Hanging/step"],
            [name for name, _ in INTRUDED],
            [name for name, _ in RAISED + REFUSED],
            MIXED,
        ],
        MIXED,
    ),
    ids=["crash", "hang", "intrude", "raise", "mixed"],
)
def test_errors_among_forty_healthy_worlds_cost_them_nothing(names: list[str]) -> None:
    async def use(pool: WorkerPool) -> tuple[list[Any], list[Any]]:
        async def healthy(seed: int) -> list[Any]:
            world = await pool.make(COUNTING)
            seen: list[Any] = [await world.reset(task(seed))]
            for word in WORDS:
                await asyncio.sleep(0.01 * (seed % 7))
                seen.append(await world.step(Action(word)))
            await world.close()
            return seen

        async def broken(number: int) -> None:
            await asyncio.sleep(0.05 * number)
            world = await pool.make(f"{FAULTY}:{names[number]}")
            await world.reset(task(1))
            await world.oracle()
            await world.step(Action("1"))
            await asyncio.sleep(0.05)
            await world.step(Action("1"))
            await world.close()

        broken_ones = [broken(number) for number in range(len(names))]
        results = await asyncio.gather(
            *map(healthy, range(40)), *broken_ones, return_exceptions=True
        )
        return results[:40], results[40:]

    healthy, broken = pooled(use, count=2, timeout=3.0)
    assert healthy == [expected(seed) for seed in range(40)]
    for name, result in zip(names, broken, strict=True):
        assert isinstance(result, EnvironmentFault) or name == "Crashing/close"


def test_a_crash_while_closing_costs_nothing() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        bystander = await pool.make(COUNTING)
        await bystander.reset(task(5))
        seen = await episode(await pool.make(f"{FAULTY}:Crashing/close"), 5)
        assert await bystander.step(Action(WORDS[0])) == seen[1]
        assert pool.restarts == 1
        return seen

    assert pooled(use) == expected(5)


def test_a_world_that_only_waits_is_brought_back_where_it_was() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        world = await pool.make(COUNTING)
        unused = await pool.make(COUNTING)
        seen: list[Any] = [await world.reset(task(5))]
        for number, word in enumerate(WORDS):
            if number % 4 == 1:
                await fault(episode(await pool.make(f"{FAULTY}:Crashing/step"), 1))
            seen.append(await world.step(Action(word)))
        assert await episode(unused, 5) == seen
        assert pool.restarts == 3
        return seen

    assert pooled(use) == expected(5)


@pytest.mark.parametrize("name", ["Chance", "SecretChance"])
def test_a_world_that_cannot_be_replayed_is_lost_with_its_worker(name: str) -> None:
    async def use(pool: WorkerPool) -> EnvironmentFault:
        world = await pool.make(f"{FAULTY}:{name}")
        await world.reset(task())
        await world.step(Action("1"))
        await fault(episode(await pool.make(f"{FAULTY}:Crashing/reset"), 1))
        shown = await fault(world.step(Action("1")))
        await world.reset(task())
        await world.step(Action("1"))
        return shown

    shown = pooled(use)
    assert shown.kind == "crash" and "lost with its worker" in shown.detail


@pytest.mark.parametrize("busy", [False, True], ids=["noticed", "while this process was busy"])
def test_a_worker_killed_while_idle_costs_nothing(busy: bool) -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        world = await pool.make(COUNTING)
        seen: list[Any] = [await world.reset(task(5))]
        for number, word in enumerate(WORDS):
            if number == 4:
                [worker] = workers_of(os.getpid())
                worker.kill()
                if busy:
                    time.sleep(0.3)
                else:
                    await asyncio.sleep(0.3)
            seen.append(await world.step(Action(word)))
        assert pool.restarts == 1
        return seen

    assert pooled(use) == expected(5)


def test_a_busy_parent_does_not_take_its_own_delay_for_a_hang() -> None:
    async def use(pool: WorkerPool) -> int:
        world = await pool.make(f"{FAULTY}:Slow")
        await world.reset(task())
        step = asyncio.create_task(world.step(Action("1")))
        await asyncio.sleep(0.1)
        time.sleep(2.5)
        await step
        return pool.restarts

    assert pooled(use, timeout=2.0) == 0


# ── ends caused by other processes ───────────────────────────────────────────


async def killed_at(mark: Path, number: signal.Signals) -> None:
    """Send the signal to the only worker once its environment has come to the mark."""
    while not mark.exists():
        await asyncio.sleep(0.01)
    [worker] = workers_of(os.getpid())
    worker.send_signal(number)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(faulty.Doomed.MARK, str(tmp_path / "mark"))
    return tmp_path / "mark"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_killed_from_outside_is_no_error_of_the_world_it_was_with(
    mark: Path, number: signal.Signals
) -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        world = await pool.make(f"{FAULTY}:Doomed/step")
        seen: list[Any] = [await world.reset(task(5)), await world.step(Action(WORDS[0]))]
        kill = asyncio.create_task(killed_at(mark, number))
        with pytest.raises(InfrastructureFault, match=f"from outside .killed by {number.name}"):
            await world.step(Action(WORDS[1]))
        await kill
        seen += [await world.step(Action(word)) for word in WORDS[1:]]  # it is where it was
        assert pool.restarts == 1
        return seen

    assert pooled(use) == expected(5)


def test_a_killed_worker_whose_end_is_learned_late_was_killed_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a short grace, its pipe may close long before this process has its exit status."""
    monkeypatch.setattr(worker_handle, "EXIT_GRACE", 0.1)

    async def use(pool: WorkerPool) -> None:
        world = await pool.make(f"{FAULTY}:Plodding")
        for _ in range(8):
            await world.reset(task(5))
            step = asyncio.create_task(world.step(Action("1")))
            await asyncio.sleep(0.1)
            [worker] = workers_of(os.getpid())
            worker.kill()
            with pytest.raises(InfrastructureFault, match=r"from outside .killed by SIGKILL"):
                await step

    pooled(use)


def test_a_world_that_breaks_its_own_process_is_to_blame(mark: Path) -> None:
    async def use(pool: WorkerPool) -> EnvironmentFault:
        world = await pool.make(f"{FAULTY}:Doomed/step")
        kill = asyncio.create_task(killed_at(mark, signal.SIGSEGV))
        shown = await fault(episode(world, 5))
        await kill
        return shown

    shown = pooled(use)
    assert shown.kind == "crash" and "SIGSEGV" in shown.detail


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("place", ["making", "reset"])
def test_making_and_resetting_a_world_is_tried_again_in_a_fresh_worker(
    mark: Path, place: str, number: signal.Signals
) -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        kill = asyncio.create_task(killed_at(mark, number))
        seen = await episode(await pool.make(f"{FAULTY}:Doomed/{place}"), 5)
        await kill
        assert pool.restarts == 1
        return seen

    assert pooled(use) == expected(5)


def test_a_nondeterministic_environment_lost_with_a_killed_worker_is_an_infrastructure_error() -> (
    None
):
    async def use(pool: WorkerPool) -> None:
        world = await pool.make(f"{FAULTY}:Chance")
        await world.reset(task())
        await world.step(Action("1"))
        [worker] = workers_of(os.getpid())
        worker.kill()
        await asyncio.sleep(0.3)
        with pytest.raises(InfrastructureFault, match="not deterministic"):
            await world.step(Action("1"))
        await world.reset(task())

    pooled(use)


def test_a_worker_that_was_stopped_is_no_hang_of_its_world() -> None:
    async def use(pool: WorkerPool) -> None:
        world = await pool.make(f"{FAULTY}:Plodding")
        await world.reset(task(5))
        [worker] = workers_of(os.getpid())
        worker.suspend()
        with pytest.raises(InfrastructureFault, match="stopped from outside"):
            await world.step(Action("1"))
        assert (await world.step(Action("1")))[0].observation.text == "total 6 after 1"

    pooled(use, timeout=2.0)


SUSPENDED = """
import asyncio, sys
from palaestra.core.environment import Action
from palaestra.core.errors import InfrastructureFault
from palaestra.core.task import Task
from palaestra.rollout.worker_pool import WorkerPool

async def main():
    async with WorkerPool(1, timeout=3.0) as pool:
        world = await pool.make(sys.argv[1] + ":Plodding")
        await world.reset(Task("train/0", "x", 0))
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            transition, _ = await world.step(Action("1"))
        except InfrastructureFault:
            transition, _ = await world.step(Action("1"))
        print(transition.observation.text, pool.restarts, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "restarts"),
    [
        (5.0, {0}),
        (ALLOWANCE + 6.0, {0, 1}),  # longer than a worker that does not respond is kept
    ],
)
def test_time_in_which_this_process_was_stopped_makes_no_hang(
    seconds: float, restarts: set[int]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED, FAULTY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdin is not None and parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    everything = [psutil.Process(parent.pid), *workers_of(parent.pid)]
    parent.stdin.write("\n")
    parent.stdin.flush()
    time.sleep(0.2)
    for process in everything:
        process.suspend()
    time.sleep(seconds)
    for process in everything:
        process.resume()
    output, _ = parent.communicate(timeout=60)
    assert output in {f"total 1 after 1 {count}\n" for count in restarts}


# ── cancellation and ends ────────────────────────────────────────────────────


def test_a_cancelled_step_has_not_happened_and_its_reply_reaches_no_other_caller() -> None:
    async def use(pool: WorkerPool) -> None:
        slow, other = await pool.make(f"{FAULTY}:Slow"), await pool.make(COUNTING)
        await slow.reset(task(0))
        first, _ = await slow.step(Action("1"))
        assert first.observation.text == "total 1 after 1"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.step(Action("100")), 0.1)
        assert await episode(other, 5) == await episode(LocalEnvironment(faulty.Counting()), 5)
        second, _ = await slow.step(Action("2"))
        assert second.observation.text == "total 3 after 2"
        assert pool.restarts == 0

    pooled(use)


def test_a_call_cancelled_in_the_queue_is_never_made() -> None:
    async def use(pool: WorkerPool) -> None:
        slow, other = await pool.make(f"{FAULTY}:Slow"), await pool.make(COUNTING)
        await slow.reset(task(0))
        await other.reset(task(0))
        step = asyncio.create_task(slow.step(Action("1")))
        queued = asyncio.create_task(other.step(Action("100")))
        for _ in range(6):
            await asyncio.sleep(0)
        queued.cancel()
        await asyncio.wait({queued})
        assert queued.cancelled()
        assert (await other.step(Action("2")))[0].observation.text == "total 2 after 1"
        assert (await step)[0].observation.text == "total 1 after 1"

    pooled(use)


@pytest.mark.slow
def test_a_hang_whose_caller_has_left_still_ends_at_the_time_out() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        world = await pool.make(f"{FAULTY}:Hanging/reset")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.reset(task()), 0.1)
        await world.close()
        seen = await episode(await pool.make(COUNTING), 5)
        assert pool.restarts == 2
        return seen

    assert pooled(use, timeout=2.0) == expected(5)


def test_random_cancellations_leave_every_world_in_step() -> None:
    async def use(pool: WorkerPool) -> list[list[Any]]:
        async def one(seed: int) -> list[Any]:
            world = await pool.make(COUNTING)
            seen: list[Any] = [await world.reset(task(seed))]
            for number, word in enumerate(WORDS):
                if (seed + number) % 3 == 0:
                    step = asyncio.create_task(world.step(Action("1000")))
                    for _ in range((seed * 7 + number) % 12):
                        await asyncio.sleep(0)
                    if not step.done():
                        step.cancel()
                        await asyncio.wait({step})
                        assert step.cancelled()
                seen.append(await world.step(Action(word)))
            return seen

        return await asyncio.gather(*map(one, range(30)))

    assert pooled(use, count=2) == [expected(seed) for seed in range(30)]


def test_the_end_of_a_pool_leaves_no_process_and_no_zombie(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async def run() -> list[int]:
        async with WorkerPool(2) as pool:
            hanging = await pool.make(f"{FAULTY}:Parental")
            parent, child = (await hanging.reset(task()))[0].text.split()
            pids = [worker.pid for worker in workers_of(os.getpid())]
            assert len(pids) == 2 and int(parent) in pids
            step = asyncio.create_task(hanging.step(Action("1")))
            await asyncio.sleep(0.1)
        with pytest.raises((EnvironmentFault, asyncio.CancelledError)):
            await step
        assert not any(psutil.pid_exists(pid) for pid in pids)
        with pytest.raises(InfrastructureFault, match="closed"):
            await pool.make(COUNTING)
        await hanging.close()
        return [int(child)]

    assert gone(asyncio.run(run()))
    gc.collect()
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning | RuntimeWarning)]


def test_an_environment_that_blocks_the_interpreter_cannot_keep_an_orphan_alive() -> None:
    made = Request(1, Verb.MAKE, environment=f"{FAULTY}:Blocking")
    seconds = str(2.0 - ALLOWANCE)
    worker = subprocess.Popen(
        [sys.executable, "-m", "palaestra.rollout.worker", seconds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    assert worker.stdin is not None and worker.stdout is not None
    for request in (made, Request(1, Verb.RESET, task=task())):
        worker.stdin.write(framed(REQUEST.dump_json(request)))
    worker.stdin.flush()
    assert worker.wait(timeout=60) == 1
    worker.stdin.close()
    worker.stdout.close()


PARENT = """
import asyncio, sys
from palaestra.core.environment import Action
from palaestra.core.task import Task
from palaestra.rollout.worker_pool import WorkerPool

async def main():
    async with WorkerPool(2) as pool:
        hanging = await pool.make(sys.argv[1] + ":Parental")
        observation, _ = await hanging.reset(Task("train/0", "x", 0))
        print(observation.text, flush=True)
        await hanging.step(Action("1"))

asyncio.run(main())
"""


def _hears_interrupts() -> None:
    """Also where the tests run in the background of a shell, which ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("end", mostly_slow([signal.SIGKILL, signal.SIGINT], signal.SIGKILL))
def test_an_ended_parent_leaves_no_children(end: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, FAULTY],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        preexec_fn=_hears_interrupts,
    )
    assert parent.stdout is not None
    started = [int(pid) for pid in parent.stdout.readline().split()]
    pids = [worker.pid for worker in workers_of(parent.pid)]
    assert len(pids) == 2 and started[0] in pids
    time.sleep(0.2)
    parent.send_signal(end)
    parent.wait(timeout=30)
    parent.stdout.close()
    assert gone([*pids, *started])
