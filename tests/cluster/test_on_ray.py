"""Runs on Ray: one cluster of this machine for the module, and nothing left of it."""

from __future__ import annotations

import asyncio
import io
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import palaestra as pa
from palaestra.cluster import fleet
from palaestra.cluster.driver import Workers, worker_kind
from palaestra.runtime.progress import Reporter
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.training.runs import (
    palaestra,
    recorded_episodes,
    started,
    weights_hash,
    write_recipe,
)

ray = pytest.importorskip("ray", reason="needs palaestra[ray]")

KEYS = ["rl.steps=2", "evaluation.tasks=4", "evaluation.transfer_tasks=2", "environment.workers=0"]


def ray_processes() -> list[psutil.Process]:
    """Return what belongs to any Ray that was started here."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            text = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "raylet" in text or "gcs_server" in text or "ray::" in text:
            found.append(child)
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray of two processors; gives its address."""
    context = ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="palaestra"
    )
    yield context.address_info["address"]
    ray.shutdown()
    _, left = psutil.wait_procs(ray_processes(), timeout=10)
    assert not left


@pytest.fixture(scope="module")
def undisturbed(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in this process."""
    folder = tmp_path_factory.mktemp("here")
    recipe = load(str(write_recipe(folder)), KEYS)
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, quiet()))
    return folder / "run"


def quiet() -> Reporter:
    return Reporter(Console(file=io.StringIO()))


async def disturbed(
    folder: Path, kills: int, seed: int, *keys: str, by: int = signal.SIGKILL
) -> list[str]:
    """Train on Ray while random workers are killed at random moments; return what was said."""
    from palaestra.cluster.ray_launcher import RayLauncher

    rng, said = random.Random(seed), list[str]()
    recipe = load(str(write_recipe(folder)), [*KEYS, *keys])

    async def kill(workers: Workers) -> None:
        for _ in range(kills):
            while not any(workers.leases.load(birth) for birth in workers.connected):
                await asyncio.sleep(0.001)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            if workers.connected:
                chosen = workers.connected[rng.choice(sorted(workers.connected))]
                psutil.Process(chosen.greeting.pid).send_signal(by)

    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        kind = worker_kind(2, 2)
        launcher = RayLauncher(None, [kind])
        async with Workers(launcher, said.append, kind, processes=0) as workers:
            killing = asyncio.create_task(kill(workers))
            await execute(recipe, run, quiet(), elsewhere=workers.session)
            killing.cancel()
    return [line for line in said if "is lost" in line]


@pytest.mark.parametrize(("seed", "kills"), [pytest.param(1, 0, marks=pytest.mark.slow), (2, 3)])
def test_a_run_on_ray_has_the_weights_and_episodes_of_one_here(
    cluster: str, undisturbed: Path, tmp_path: Path, seed: int, kills: int
) -> None:
    lost = asyncio.run(disturbed(tmp_path, kills, seed))
    assert len(lost) >= min(1, kills)
    assert weights_hash(tmp_path / "run") == weights_hash(undisturbed)
    assert recorded_episodes(tmp_path / "run") == recorded_episodes(undisturbed)


def test_a_frozen_worker_on_ray_is_replaced(
    cluster: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SILENT", 3)
    lost = asyncio.run(disturbed(tmp_path, 1, 4, by=signal.SIGSTOP))
    assert len(lost) == 1 and "without a sign of life" in lost[0]
    assert recorded_episodes(tmp_path / "run") == recorded_episodes(undisturbed)


@pytest.mark.slow
def test_asynchronous_rollouts_with_kills_learn_every_group_once(
    cluster: str, tmp_path: Path
) -> None:
    keys = ["deterministic=false", "rl.asynchronous=true", "rl.staleness=1", "rl.steps=4"]
    asyncio.run(disturbed(tmp_path, 2, 3, *keys))
    with RunFolder.read(tmp_path / "run") as run:
        steps = [values for _, values in run.database.metrics("rl")]
        updates = load(str(tmp_path / "small.toml"), keys).rl.minibatches
        phases = [name for name in run.database.phases() if name.startswith("rl/")]
        episodes = [e for name in phases for e in run.database.episodes(name)]
    assert len(steps) == 4 and max(values["stale"] for values in steps) <= updates
    assert len(episodes) == len({e.key for e in episodes}) == 4 * 4 * 4
    assert all(e.outcome.scored for e in episodes)
    for e in episodes:
        assert [c.index for c in e.calls] == list(range(len(e.calls)))
        assert [s.index for s in e.steps] == list(range(len(e.steps)))


def test_a_worker_on_ray_has_no_torch_and_at_most_200_mib(cluster: str, tmp_path: Path) -> None:
    async def run() -> None:
        from palaestra.cluster.ray_launcher import RayLauncher

        recipe = load(str(write_recipe(tmp_path)), [*KEYS, "rl.steps=0"])
        with RunFolder.create(tmp_path / "run", recipe.model_dump(mode="json")) as run:
            kind = worker_kind(1, 1)
            launcher = RayLauncher(None, [kind])
            async with Workers(launcher, print, kind, processes=1) as workers:
                await execute(recipe, run, quiet(), elsewhere=workers.session)
                pid = workers.connected[1].greeting.pid
                used = psutil.Process(pid).memory_full_info().uss / 2**20
                print(f"a worker without its environments: {used:.0f} MiB")
                assert psutil.Process(pid).memory_info().rss < 200 * 2**20
                assert "torch" not in Path(f"/proc/{pid}/maps").read_text()

    asyncio.run(run())


def test_python_evaluates_on_a_cluster_and_notes_who_is_where(cluster: str, tmp_path: Path) -> None:
    terms: dict[str, Any] = {"model": "random", "n": 6, "workers": 0, "progress": False}
    there = pa.evaluate("babyai/GoToObjS4", on="ray", run=tmp_path / "there", **terms)
    here = pa.evaluate("babyai/GoToObjS4", run=tmp_path / "here", **terms)
    assert recorded_episodes(tmp_path / "there") == recorded_episodes(tmp_path / "here")
    assert there.success == here.success
    with RunFolder.read(tmp_path / "there") as run:
        roster = Roster.read(run.database)
    assert roster is not None and not roster.present
    assert sum(entry.done for entry in roster.entries) == 6


@pytest.mark.slow
def test_python_trains_and_resumes_on_a_cluster(
    cluster: str, undisturbed: Path, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path)
    sections: dict[str, Any] = {
        "rl": {"steps": 2},
        "evaluation": {"tasks": 4, "transfer_tasks": 2},
        "environment": {"workers": 0},
    }
    run = pa.train(recipe, on="ray", run=tmp_path / "run", progress=False, **sections)
    assert weights_hash(run.path) == weights_hash(undisturbed)
    assert run.resume(on="ray", progress=False).metrics == run.metrics


@pytest.mark.slow
def test_the_command_line_trains_and_evaluates_on_a_cluster_by_its_address(
    cluster: str, undisturbed: Path, tmp_path: Path
) -> None:
    sets = ["--set", *KEYS, "cluster.workers=[2, 2]"]
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    shown = palaestra("train", recipe, *sets, "--dry-run", f"--on=ray={cluster}").stdout
    assert "(2 CPU): 2 workers" in shown
    palaestra("train", recipe, *sets, "--run", run, f"--on=ray={cluster}")
    assert weights_hash(run) == weights_hash(undisturbed)
    arguments = ("eval", "--env", "babyai/GoToObjS4", "--model", "random", "-n", "8")
    palaestra(*arguments, "--run", tmp_path / "there", f"--on=ray={cluster}")
    palaestra(*arguments, "--run", tmp_path / "here")
    assert recorded_episodes(tmp_path / "there") == recorded_episodes(tmp_path / "here")


def test_ctrl_c_exits_with_130_and_leaves_no_worker(cluster: str, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    arguments = ("--set", "rl.steps=500", "--run", run, f"--on=ray={cluster}")
    process = started("train", recipe, *arguments, until="demonstrations")
    time.sleep(1.0)
    serving = [p for p in ray_processes() if "ray::palaestra worker" in " ".join(p.cmdline())]
    assert serving
    process.send_signal(signal.SIGINT)
    stopped = time.monotonic()
    words = process.stderr.read()
    assert process.wait(10) == 130
    _, left = psutil.wait_procs(serving, timeout=max(0.1, 5 - (time.monotonic() - stopped)))
    assert not left
    assert "Resume with" in words
    process.stderr.close()


def test_a_cluster_that_is_too_small_is_refused_with_wait(cluster: str, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    keys = ("--set", "cluster.workers=[9, 9]", "--run", run)
    on = (f"--on=ray={cluster}", "--wait", "0")
    said = " ".join(palaestra("train", recipe, *keys, *on, check=2).stderr.split())
    assert "cluster.workers asks for at least 9 of 1 CPU each" in said
    assert "wait longer (--wait)" in said and not run.exists()


def test_an_address_without_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = palaestra(
        "train", write_recipe(tmp_path), "--run", run, "--on=ray=127.0.0.1:9", check=2
    )
    assert "There is no Ray cluster at '127.0.0.1:9'" in found.stderr
    assert not run.exists()
