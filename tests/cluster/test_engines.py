"""Engines as plain processes that are killed, frozen and given other weights; and their runs."""

from __future__ import annotations

import asyncio
import io
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from palaestra.cluster import fleet
from palaestra.cluster.engines import Engines, engine_kind
from palaestra.core.errors import ClusterFailed
from palaestra.core.message import user
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.cluster.policies import Policy, acting
from tests.cluster.processes import Processes, Thawing
from tests.training.runs import recorded_episodes, weights_hash, write_recipe

KEYS = ["rl.steps=2", "evaluation.tasks=4", "evaluation.transfer_tasks=2", "environment.workers=0"]


def prompts(policy: Policy, count: int, tokens: int = 12) -> list[Prompt]:
    """Return prompts of sessions in groups of four."""
    text = tuple(policy.model.renderer.start([user("go to the red ball")]))
    return [
        Prompt((), text, Sampling(1.0, tokens), 100 + n, f"rl/1/{n // 4}.{n % 4}")
        for n in range(count)
    ]


async def replies(model: Model, asked: Sequence[Prompt]) -> list[Generation]:
    return await asyncio.gather(*(model.generate(prompt) for prompt in asked))


def alike(first: Sequence[Generation], second: Sequence[Generation]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a.tokens == b.tokens and a.logprobs == b.logprobs for a, b in pairs)


async def at_work(engines: Engines, count: int, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        await engines.until(lambda: engines.router.serving >= count)


@pytest.mark.slow
def test_a_killed_engine_costs_no_reply_and_its_successor_has_the_weights(tmp_path: Path) -> None:
    async def run() -> None:
        policy, launcher, said = Policy(tmp_path), Processes(2), list[str]()
        asked = prompts(policy, 32)
        async with acting(policy, 2, launcher, said.append, one_by_one=True) as (engines, model):
            here, there = await replies(policy.model, asked), await replies(model, asked)
            assert [a.tokens for a in here] == [b.tokens for b in there]
            for a, b in zip(here, there, strict=True):
                assert max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)) < 1e-4
            await engines.publish(policy.learn())
            fresh = await replies(model, asked)
            assert {v for reply in fresh for v in reply.versions} == {1}
            assert not alike(fresh, there)
            working = asyncio.create_task(replies(model, asked))
            while not engines.router.load(1):
                await asyncio.sleep(0.001)
            launcher.running[1].kill()
            assert alike(await working, fresh)
            assert "engine 1" in said[0] and "status -9" in said[0] and "calls go on" in said[0]
            await at_work(engines, 2)
            launcher.running[2].kill()
            assert alike(await replies(model, asked), fresh)  # the successor's
        assert launcher.started >= 3

    asyncio.run(run())


@pytest.mark.slow
def test_an_engine_whose_machine_leaves_answers_what_it_has_and_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        policy, launcher, said = Policy(tmp_path), Processes(2), list[str]()
        asked = prompts(policy, 32)
        async with acting(policy, 2, launcher, said.append, one_by_one=True) as (engines, model):
            fresh = await replies(model, asked)
            before = {entry.number: entry.done for entry in engines.roster.entries}
            working = asyncio.create_task(replies(model, asked))
            while not engines.router.load(1):
                await asyncio.sleep(0.001)
            held = engines.router.load(1)
            launcher.dismissed = {1}
            assert alike(await working, fresh)
            async with asyncio.timeout(20):
                while 1 in launcher.running:
                    await asyncio.sleep(0.01)
            (left,) = [entry for entry in engines.roster.entries if entry.gone]
            assert left.number == 1 and left.moved == 0 and left.done >= before[1] + held
            assert engines.router.refused == 0 and engines.roster.deaths == 0
            assert alike(await replies(model, asked), fresh)  # one of them started in its place
        assert any("engine 1 on" in line and "has left" in line for line in said)

    asyncio.run(run())


@pytest.mark.slow
def test_no_reply_has_weights_that_were_not_wanted_while_it_was_sampled(tmp_path: Path) -> None:
    async def run() -> None:
        policy, launcher = Policy(tmp_path), Processes(2)
        asked = prompts(policy, 64, tokens=24)
        async with acting(policy, 2, launcher) as (engines, model):

            async def one(prompt: Prompt) -> tuple[int, Generation]:
                await asyncio.sleep(random.Random(prompt.seed).uniform(0, 0.5))
                assert engines.router.wanted is not None
                return engines.router.wanted, await model.generate(prompt)

            working = [asyncio.create_task(one(prompt)) for prompt in asked]
            for _ in range(3):
                await asyncio.sleep(0.15)
                await engines.publish(policy.learn())
            found = await asyncio.gather(*working)
            for wanted, reply in found:
                assert len(set(reply.versions)) == 1  # `drain`: none goes on with others
                assert wanted <= reply.version <= 3
            assert len({reply.version for _, reply in found}) > 1

    asyncio.run(run())


@pytest.mark.slow
def test_a_frozen_engine_is_replaced_and_answers_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SILENT", 3)

    async def run() -> None:
        policy, launcher = Policy(tmp_path), Thawing(2)
        asked = prompts(policy, 32)
        async with acting(policy, 2, launcher, one_by_one=True) as (engines, model):
            fresh = await replies(model, asked)
            frozen = launcher.running[1]
            os.kill(frozen.pid, signal.SIGSTOP)
            found = await asyncio.wait_for(replies(model, asked), 30)
            assert alike(found, fresh) and 1 not in engines.connected
            await engines.publish(policy.learn())
            os.kill(frozen.pid, signal.SIGCONT)
            launcher.running.pop(1)
            assert await asyncio.to_thread(frozen.wait, 10) == 0  # it ends without its driver
            versions = {v for reply in await replies(model, asked) for v in reply.versions}
            assert versions == {1}

    asyncio.run(run())


def test_five_deaths_stop_the_run_with_the_cause(tmp_path: Path) -> None:
    async def run() -> None:
        launcher = Processes(program="import sys; sys.exit('no device left')")
        with pytest.raises(ClusterFailed, match=r"Five engines died within.*no device left"):
            async with acting(Policy(tmp_path), 1, launcher):
                pass

    asyncio.run(run())


@pytest.mark.slow
def test_engines_end_with_their_driver(tmp_path: Path) -> None:
    async def run() -> list[int]:
        launcher = Processes(1)
        async with acting(Policy(tmp_path), 1, launcher):
            pids = [process.pid for process in launcher.running.values()]
            launcher.running.clear()  # so that none is killed
        return pids

    pids = asyncio.run(run())
    psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=10)
    left = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]
    assert not left


# ── runs ─────────────────────────────────────────────────────────────────────


async def train(folder: Path, count: int, *keys: str, kills: int = 0) -> list[str]:
    """Train with engines; return what was said of those that were killed at random moments."""
    folder.mkdir()
    recipe = load(str(write_recipe(folder)), [*KEYS, *keys])
    launcher, said, rng = Processes(count), list[str](), random.Random(count)

    async def kill(engines: Engines) -> None:
        for _ in range(kills):
            await at_work(engines, count)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            launcher.running[rng.choice(sorted(engines.connected))].kill()

    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        async with Engines(launcher, said.append, engine_kind(count)) as engines:
            killing = asyncio.create_task(kill(engines))
            await execute(recipe, run, Reporter(Console(file=io.StringIO())), engines=engines)
            killing.cancel()
    return [line for line in said if "is lost" in line]


@pytest.mark.slow
def test_a_deterministic_run_is_the_same_with_any_number_of_engines_and_kills(
    tmp_path: Path,
) -> None:
    asyncio.run(train(tmp_path / "one", 1))
    lost = asyncio.run(train(tmp_path / "two", 2, kills=2))
    assert lost
    assert weights_hash(tmp_path / "two" / "run") == weights_hash(tmp_path / "one" / "run")
    assert recorded_episodes(tmp_path / "two" / "run") == recorded_episodes(
        tmp_path / "one" / "run"
    )


@pytest.mark.slow
@pytest.mark.parametrize("on_update", ["drain", "recompute", "keep"])
def test_asynchronous_runs_with_kills_learn_every_group_once_within_their_staleness(
    on_update: str, tmp_path: Path
) -> None:
    keys = ["deterministic=false", "rl.asynchronous=true", "rl.staleness=1", "rl.steps=4"]
    lost = asyncio.run(
        train(tmp_path / "run", 2, *keys, f"rl.on_update={on_update}", "concurrency=8", kills=1)
    )
    assert lost
    with RunFolder.read(tmp_path / "run" / "run") as run:
        steps = [values for _, values in run.database.metrics("rl")]
        episodes = [e for s in range(1, 5) for e in run.database.episodes(f"rl/{s}")]
        updates = load("quick").rl.minibatches
    assert len(steps) == 4 and not any(m["unscored"] for m in steps)
    assert max(m["stale"] for m in steps) <= updates
    assert len(episodes) == len({e.key for e in episodes}) == 4 * 4 * 4
    versions = {v for e in episodes for call in e.calls for v in call.token_versions}
    assert max(versions) - min(versions) < 4 * updates and len(versions) > 2
