"""A run that is left to a cluster as a Ray job, on a Ray of this machine with its dashboard."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment, palaestra, write_recipe

pytest.importorskip("ray", reason="needs palaestra[ray]")
KEYS = ["rl.steps=2", "evaluation.tasks=4", "evaluation.transfer_tasks=2", "environment.workers=0"]


@pytest.fixture
def cluster() -> Iterator[str]:
    pytest.importorskip("aiohttp_cors", reason="needs ray[default]")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        patch.setenv("PATH", path)
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        patch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).absolute()) for path in paths))
        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]  # another Ray of this machine may have the usual one
        found = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 2,
                "include_dashboard": True,
                "dashboard_port": 0,
                "dashboard_agent_listen_port": port,
            },
        )
        yield found.address
        found.shutdown()


@pytest.mark.slow
def test_a_run_goes_on_after_the_command_that_left_it_to_the_cluster(
    cluster: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    on = ("--set", *KEYS, "--run", run, f"--on=ray={cluster}", "--detach")
    said = palaestra("train", write_recipe(tmp_path), *on).stdout
    assert f"in {run}" in said and "ray job logs raysubmit_" in said
    until = time.monotonic() + 120
    while not (run / "final" / "model.safetensors").is_file():
        assert time.monotonic() < until
        time.sleep(0.2)
    with RunFolder.read(run) as opened:
        assert {"rl/1", "rl/2"} <= set(opened.database.phases())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("quick", "--detach"), "add --on ray=HOST:PORT"),
        (("quick", "--detach", "--on", "ray"), "outlives this command"),
        (("quick", "--detach", "--on", "ray=127.0.0.1:9", "--json"), "drop --dry-run and --json"),
    ],
)
def test_a_run_that_cannot_be_left_is_refused(words: tuple[str, ...], message: str) -> None:
    found = subprocess.run(
        command("train", *words), env=environment(), capture_output=True, text=True, check=False
    )
    assert found.returncode == 2 and message in " ".join(found.stderr.split())
