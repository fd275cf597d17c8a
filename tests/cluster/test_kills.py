"""Kills of a run's driver, of a machine and of the cluster's head, and machines that come and go.

One cluster of three Ray nodes of this machine for the module: a head without room for workers, and
two machines with room for one worker each. Nothing of it is left afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from palaestra.cluster.driver import Workers, worker_kind
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.cluster.test_on_ray import KEYS, quiet, ray_processes
from tests.training.runs import (
    command,
    environment,
    palaestra,
    recorded_episodes,
    weights_hash,
    write_recipe,
)

ray = pytest.importorskip("ray", reason="needs palaestra[ray]")


@contextmanager
def machines(count: int) -> Iterator[Any]:
    """A cluster of a head without processors and so many machines of one."""
    from ray.cluster_utils import Cluster

    before = set(ray_processes())
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(count):
            found.add_node(num_cpus=1)
        yield found
    finally:
        found.shutdown()
        _, left = psutil.wait_procs(set(ray_processes()) - before, timeout=20)
        assert not left


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where copies of records are on the machines of `cluster`."""
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def cluster(copies: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALAESTRA_COPIES", str(copies))
        with machines(2) as found:
            yield found


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[Any]:
    """The cluster, to which this process is connected."""
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        namespace="palaestra",
    )
    yield cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("here")
    palaestra("train", write_recipe(folder), "--set", *KEYS, "--run", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def undisturbed_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in this process, whose number of threads may be another."""
    folder = tmp_path_factory.mktemp("here")
    recipe = load(str(write_recipe(folder)), KEYS)
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, quiet()))
    return folder / "run"


def begun(
    folder: Path, cluster: Any, phase: str = "rl/2", keys: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """A run on the cluster in a process of its own, once it is within a phase."""
    recipe, on = write_recipe(folder), f"--on=ray={cluster.address}"
    process = subprocess.Popen(
        command("train", recipe, "--set", *KEYS, *keys, "--run", folder / "run", on),
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while phase not in phases(folder / "run"):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    return process


def phases(run: Path) -> list[str]:
    if not (run / "run.json").is_file():
        return []
    with RunFolder.read(run) as opened:
        return opened.database.phases()


def workers_of_ray() -> list[psutil.Process]:
    return [p for p in ray_processes() if "ray::palaestra worker" in " ".join(p.cmdline())]


def processes_of_run() -> list[psutil.Process]:
    return [p for p in ray_processes() if "ray::palaestra " in " ".join(p.cmdline())]


def alike(run: Path, undisturbed: Path) -> bool:
    return weights_hash(run) == weights_hash(undisturbed) and recorded_episodes(
        run
    ) == recorded_episodes(undisturbed)


@pytest.mark.slow  # the test below shows the same for a run with less
def test_a_killed_driver_leaves_no_worker_and_its_run_goes_on(
    cluster: Any, undisturbed: Path, tmp_path: Path
) -> None:
    process = begun(tmp_path, cluster, "test/imitation")
    serving = workers_of_ray()
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(serving, timeout=10)
    assert serving and not left
    palaestra("train", "--resume", tmp_path / "run", f"--on=ray={cluster.address}")
    assert alike(tmp_path / "run", undisturbed)
    with RunFolder.read(tmp_path / "run") as run:
        roster = Roster.read(run.database)
    assert roster is not None and sum(entry.done for entry in roster.entries) > 0


def test_a_run_that_is_lost_with_its_driver_and_its_disk_goes_on_from_a_copy(
    cluster: Any, copies: Path, undisturbed: Path, tmp_path: Path
) -> None:
    keys = ["cluster.copies=2", "cluster.learners=2", "cluster.learner_cpus=0.5"]
    keys += ["cluster.workers=[1, 1]"]
    process = begun(tmp_path, cluster, keys=keys)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(processes_of_run(), timeout=10)
    assert not left
    shutil.rmtree(tmp_path / "run")
    palaestra("train", "--resume", copies / "run")
    assert alike(copies / "run", undisturbed)


@pytest.mark.slow
def test_a_learner_that_is_killed_with_its_part_of_the_state_costs_no_bit(
    cluster: Any, undisturbed: Path, tmp_path: Path
) -> None:
    keys = ["cluster.learners=2", "cluster.learner_cpus=0.5", "cluster.shard=true"]
    process = begun(tmp_path, cluster, keys=[*keys, "cluster.workers=[1, 1]"])
    (learner,) = [p for p in processes_of_run() if "palaestra learner" in " ".join(p.cmdline())]
    learner.kill()
    assert process.wait(120) == 0
    assert alike(tmp_path / "run", undisturbed)


async def trained(folder: Path, said: list[str], disturb: Any, most: int = 2) -> None:
    """Train on the connected cluster while `disturb(workers)` does what it does."""
    from palaestra.cluster.ray_launcher import RayLauncher

    recipe = load(str(write_recipe(folder)), KEYS)
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        kind = worker_kind(2, most)
        launcher = RayLauncher(None, [kind])
        async with Workers(launcher, said.append, kind, processes=0) as workers:
            disturbing = asyncio.create_task(asyncio.wait_for(disturb(workers), 60))
            await execute(recipe, run, quiet(), elsewhere=workers.session)
            await disturbing


def kill_machine(node: Any) -> None:
    """Kill a machine's raylet and all that it started, at once."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [*raylet.children(recursive=True), raylet]:
        process.kill()


def test_the_work_of_a_killed_machine_goes_on_and_one_that_joins_is_used(
    connected: Any, undisturbed_here: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    took: dict[str, float] = {}

    async def disturb(workers: Workers) -> None:
        while not all(workers.leases.load(birth) for birth in (1, 2)):
            await asyncio.sleep(0.002)
        node = next(iter(connected.worker_nodes))
        at = time.monotonic()
        kill_machine(node)
        while len(workers.connected) == 2:
            await asyncio.sleep(0.002)
        (birth,) = workers.connected
        while not workers.leases.load(birth):
            await asyncio.sleep(0.002)
        took["moved"] = time.monotonic() - at
        connected.remove_node(node, allow_graceful=False)
        connected.add_node(num_cpus=1)  # in this thread: it sets handlers of signals
        at = time.monotonic()
        while max(workers.connected) < 3:
            await asyncio.sleep(0.01)
        took["used"] = time.monotonic() - at

    asyncio.run(trained(tmp_path, said, disturb))
    print(took)
    assert took["moved"] < 5 and took["used"] < 10
    assert any("is lost" in line for line in said)
    assert alike(tmp_path / "run", undisturbed_here)


def test_a_machine_that_is_drained_hands_its_sessions_over(
    connected: Any, undisturbed_here: Path, tmp_path: Path
) -> None:
    said: list[str] = []

    async def disturb(workers: Workers) -> None:
        while not workers.leases.load(1):
            await asyncio.sleep(0.002)
        launcher: Any = workers._launcher
        name = launcher._machines[workers.kind, 1]
        drain = [sys.executable, "-m", "ray.scripts.scripts", "drain-node"]
        drain += ["--address", connected.address, "--node-id", name]
        drain += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"]
        drain += ["--deadline-remaining-seconds", "600"]
        await asyncio.to_thread(subprocess.run, drain, check=True, capture_output=True)
        while 1 in workers.connected:
            await asyncio.sleep(0.01)
        assert workers.roster.deaths == 0
        node = next(one for one in connected.worker_nodes if one.node_id == name)
        connected.remove_node(node, allow_graceful=False)
        connected.add_node(num_cpus=1)  # in this thread: it sets handlers of signals

    asyncio.run(trained(tmp_path, said, disturb))
    assert any("has left, as its machine is about to" in line for line in said)
    assert not any("is lost" in line for line in said)
    assert alike(tmp_path / "run", undisturbed_here)


@pytest.mark.slow
def test_two_runs_share_a_cluster(cluster: Any, undisturbed: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    running = []
    for folder in folders:
        folder.mkdir()
        running.append(begun(folder, cluster, "test/base"))
    assert [process.wait(120) for process in running] == [0, 0]
    assert all(alike(folder / "run", undisturbed) for folder in folders)


@pytest.mark.slow
def test_a_run_whose_head_is_killed_stops_and_goes_on_on_another_cluster(
    undisturbed: Path, tmp_path: Path
) -> None:
    with machines(2) as first:
        recipe = write_recipe(tmp_path)
        process = subprocess.Popen(
            command(
                "train", recipe, "--set", *KEYS[1:], "rl.steps=400", "--run", tmp_path / "run",
                f"--on=ray={first.address}",
            ),
            env=environment(), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while "rl/3" not in phases(tmp_path / "run"):
            assert process.poll() is None
            time.sleep(0.05)
        serving = workers_of_ray()
        for kind in ("gcs_server", "raylet"):
            psutil.Process(first.head_node.all_processes[kind][0].process.pid).kill()
        at = time.monotonic()
        _, words = process.communicate(timeout=120)
        print(
            f"ended after {time.monotonic() - at:.1f} s with {process.returncode}: {words[-500:]}"
        )
        assert process.returncode == 1 and "--resume" in words and "Traceback" not in words
        _, left = psutil.wait_procs(serving, timeout=10)
        assert serving and not left
    done = len([name for name in phases(tmp_path / "run") if name.startswith("rl/")])
    with machines(2) as second:
        process = subprocess.Popen(
            command("train", "--resume", tmp_path / "run", f"--on=ray={second.address}"),
            env=environment(), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while f"rl/{done + 3}" not in phases(tmp_path / "run"):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
