"""Learner ranks as plain processes that are killed in the middle of updates."""

from __future__ import annotations

import asyncio
import io
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from palaestra.api.train_run import Training
from palaestra.cluster.learner_process import learner_kind
from palaestra.cluster.learners import learning_with
from palaestra.core.errors import ClusterFailed
from palaestra.learning.loop.leading import Leader
from palaestra.runtime.progress import Reporter
from palaestra.store.database import Database
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.cluster.processes import Processes
from tests.training.runs import recorded_episodes, weights_hash, write_recipe

KEYS = ["evaluation.tasks=4", "evaluation.transfer_tasks=2", "environment.workers=0"]
LATE = 26  # sums of gradients before a kill: imitation has been saved by then, and RL has begun


pytestmark = pytest.mark.usefixtures("one_thread")


async def train(
    folder: Path,
    others: int,
    disturb: Callable[[Processes], Awaitable[None]] | None = None,
    *,
    steps: int = 3,
    shard: bool = False,
) -> list[str]:
    """Train with so many further ranks; return what was said."""
    folder.mkdir()
    keys = [f"cluster.learners={others + 1}", "cluster.shard=true"] if shard else []
    recipe = load(str(write_recipe(folder)), [*KEYS, f"rl.steps={steps}", *keys])
    launcher, said = Processes(others), list[str]()
    reporter = Reporter(Console(file=io.StringIO()))
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        if not others:
            await execute(recipe, run, reporter)
            return []
        roster, kind = Roster(), learner_kind(others)
        async with learning_with(launcher, said.append, kind, roster) as team:
            working = asyncio.create_task(execute(recipe, run, reporter, team))
            if disturb is not None:
                disturbing = asyncio.create_task(disturb(launcher))
            await working
            if disturb is not None:
                disturbing.cancel()
    assert not roster.present or all(entry.kind == "learner" for entry in roster.entries)
    assert all(process.wait(10) is not None for process in launcher.running.values())
    return said


def alike(one: Path, other: Path) -> bool:
    return weights_hash(one / "run") == weights_hash(other / "run") and recorded_episodes(
        one / "run"
    ) == recorded_episodes(other / "run")


@pytest.mark.slow
def test_a_run_is_the_same_with_other_ranks_of_which_one_is_killed(tmp_path: Path) -> None:
    async def kill(launcher: Processes) -> None:
        rng = random.Random(1)
        await asyncio.sleep(rng.uniform(1.0, 2.0))
        launcher.running[max(launcher.running)].kill()

    asyncio.run(train(tmp_path / "one", 0))
    said = asyncio.run(train(tmp_path / "two", 1, kill))
    assert any("learner 1 on" in line and "status -9" in line for line in said)
    assert alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_loads_the_model_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, killed = Leader.start, list[int]()
    launchers: list[Processes] = []

    def start_and_kill(leader: Leader, device: torch.device) -> None:
        if not killed:
            killed.append(min(launchers[0].running))
            launchers[0].running[killed[0]].kill()
        start(leader, device)

    async def note(launcher: Processes) -> None:
        launchers.append(launcher)

    monkeypatch.setattr(Leader, "start", start_and_kill)
    said = asyncio.run(train(tmp_path / "two", 1, note, steps=0))
    assert killed and any("learner 1 on" in line and "status -9" in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_is_the_same_with_three_ranks_killed_or_frozen_again_and_again(
    by: signal.Signals, tmp_path: Path
) -> None:
    async def disturb(launcher: Processes) -> None:
        rng = random.Random(2)
        for _ in range(2):
            await asyncio.sleep(rng.uniform(0.5, 2.5))
            os.kill(launcher.running[rng.choice(sorted(launcher.running))].pid, by)

    asyncio.run(train(tmp_path / "one", 0, steps=16))
    said = asyncio.run(train(tmp_path / "three", 2, disturb, steps=16))
    assert any("is lost" in line for line in said)
    assert alike(tmp_path / "one", tmp_path / "three")


@pytest.mark.slow
@pytest.mark.parametrize("others", [1, 3])
def test_a_run_is_the_same_with_ranks_that_divide_the_optimisers_state(
    others: int, tmp_path: Path
) -> None:
    asyncio.run(train(tmp_path / "one", 0))
    asyncio.run(train(tmp_path / "more", others, shard=True))
    assert alike(tmp_path / "one", tmp_path / "more")


@pytest.mark.slow
def test_a_run_that_lost_a_part_of_its_state_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launchers, calls, said = list[Processes](), list[object](), list[str]()
    sum_gradients = Leader.sum_gradients

    def sum_after_a_kill(leader: Leader, *arguments: Any) -> None:
        calls.append(leader)
        if len(calls) == LATE:
            launchers[-1].running[1].kill()
        sum_gradients(leader, *arguments)

    @asynccontextmanager
    async def elsewhere(
        processes: int, timeout: float, say: Callable[[str], None], database: Database
    ) -> AsyncIterator[Any]:
        launchers.append(Processes(1))
        kind = learner_kind(1, shard=True)
        async with learning_with(launchers[-1], said.append, kind, Roster()) as team:
            yield SimpleNamespace(team=team, engines=None, workers=SimpleNamespace(session=None))

    async def run() -> None:
        keys = [*KEYS, "rl.steps=3", "cluster.learners=2", "cluster.shard=true"]
        recipe = load(str(write_recipe(tmp_path)), keys)
        folder = tmp_path / "two" / "run"
        with RunFolder.create(folder, recipe.model_dump(mode="json")) as opened:
            reporter = Reporter(Console(file=io.StringIO()))
            monkeypatch.setattr(reporter, "say", said.append)
            await Training(recipe, opened, folder, reporter, elsewhere).execute()

    asyncio.run(train(tmp_path / "one", 0))
    monkeypatch.setattr(Leader, "sum_gradients", sum_after_a_kill)
    asyncio.run(run())
    assert len(launchers) == 2
    assert any("goes on from its last checkpoint" in line and "rank 1" in line for line in said)
    assert alike(tmp_path / "one", tmp_path / "two")


def test_ranks_that_die_again_and_again_stop_the_run_with_the_cause(tmp_path: Path) -> None:
    async def run() -> None:
        launcher = Processes(1, program="import sys; sys.exit('no memory left')")
        with pytest.raises(ClusterFailed, match=r"Five learners died .*no memory left"):
            async with learning_with(launcher, print, learner_kind(1), Roster()):
                pass

    asyncio.run(run())
