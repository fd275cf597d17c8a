"""Engines of a run on Ray, by the command line: one cluster of this machine for the module."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.test_engines import KEYS, train
from tests.training.runs import (
    command,
    environment,
    palaestra,
    recorded_episodes,
    weights_hash,
    write_recipe,
)

ray = pytest.importorskip("ray", reason="needs palaestra[ray]")

SETS = ["--set", *KEYS, "cluster.workers=[1, 1]", "cluster.engines=2", "cluster.engine_cpus=0.5"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray of two processors; gives its address."""
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield context.address_info["address"]
    ray.shutdown()


def engines() -> list[psutil.Process]:
    """Return the engines of any Ray that was started here."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "ray::palaestra engine" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_run_whose_engine_is_killed_is_that_of_one_engine_without_ray(
    cluster: str, tmp_path: Path
) -> None:
    asyncio.run(train(tmp_path / "one", 1))
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    shown = palaestra("train", recipe, *SETS, "--dry-run", f"--on=ray={cluster}").stdout
    assert "(2 CPU): 2 engines" in shown and "1 workers" in shown
    process = subprocess.Popen(
        command("train", recipe, *SETS, "--run", run, f"--on=ray={cluster}"),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "the engines make the rollouts" in line:
            break
    time.sleep(0.3)
    engines()[0].kill()
    words = " ".join(process.stderr.read().split())
    assert process.wait(10) == 0, words
    process.stderr.close()
    assert "is lost" in words and "calls go on elsewhere" in words
    assert weights_hash(run) == weights_hash(tmp_path / "one" / "run")
    assert recorded_episodes(run) == recorded_episodes(tmp_path / "one" / "run")
    _, left = psutil.wait_procs(engines(), timeout=10)
    assert not left
