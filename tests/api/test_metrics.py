"""`--metrics`: what is served while a run runs, read by Prometheus's own parser."""

from __future__ import annotations

import math
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from palaestra.api.metrics_server import address_of, serving
from palaestra.api.openmetrics import page
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment, write_recipe

EVAL = ("eval", "--env", "babyai/GoToObjS4", "--model", "random", "-n", "6", "--workers", "0")


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of a page by name and labels."""
    parser: Any = pytest.importorskip(
        "prometheus_client.openmetrics.parser", reason="prometheus-client is not installed"
    )
    return {
        (sample.name.removeprefix("palaestra_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_page_has_what_the_run_recorded(tmp_path: Path) -> None:
    assert main([*EVAL, "--run", str(tmp_path / "run")]) == 0
    with RunFolder.open(tmp_path / "run") as run:
        episodes = [e for name in run.database.phases() for e in run.database.episodes(name)]
        run.database.add_metrics("rl", 1, {"reward": 0.25, "seconds": 2.0, "kl": math.nan})
        run.database.add_metrics("rl", 2, {"reward": 0.5, "seconds": 3.0, "kl": math.inf})
        roster = Roster()
        roster.join("worker", 1, 'a "machine"\\', 10)
        roster.join("engine", 1, "b", 11)
        roster.leave("engine", 1, "killed", moved=3, died=True)
        roster.entries[0].load = 4
        roster.store(run.database)
        found = samples(page(run.database))
    assert sum(v for (name, _), v in found.items() if name == "episodes_total") == 6
    solved = [e for e in episodes if e.outcome.solved]
    assert found.get(("episodes_total", (("owner", ""), ("status", "success"))), 0) == len(solved)
    assert found["turns_total", ()] == sum(len(e.steps) for e in episodes) > 0
    assert found["episodes_begun", ()] == found["episodes_waiting", ()] == 0
    assert found["rl_steps_total", ()] == 2
    assert found["rl_seconds_total", (("part", "all"),)] == 5.0
    assert found["rl_latest", (("figure", "reward"),)] == 0.5
    assert found["rl_latest", (("figure", "kl"),)] == math.inf
    machine = ("machine", 'a "machine"\\')
    worker = ("kind", "worker")
    assert found["process_load", (worker, machine, ("number", "1"))] == 4
    assert found["processes", (worker, machine)] == 1
    assert ("processes", (("kind", "engine"), ("machine", "b"))) not in found
    assert found["process_deaths_total", ()] == 1 and found["refused_messages_total", ()] == 0


@pytest.mark.slow
def test_a_training_run_serves_its_figures_while_it_runs(tmp_path: Path) -> None:
    arguments = ("--set", "rl.steps=200", "--run", tmp_path / "run", "--metrics", "0")
    process = subprocess.Popen(
        command("train", write_recipe(tmp_path), *arguments),
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        found: dict[Any, float] = {}
        for line in process.stderr:
            if address := re.search(r"figures at (\S+)", line):
                break
        assert address is not None
        while not found.get(("rl_steps_total", ())):
            with urllib.request.urlopen(address[1], timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                found = samples(answer.read().decode())
        assert found["turns_total", ()] > 0 and found["tokens_total", (("kind", "sampled"),)] > 0
        assert found["phase_seconds_total", (("phase", "imitation"),)] > 0
        assert ("rl_latest", (("figure", "reward"),)) in found
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_before_the_run_there_is_nothing_to_serve(tmp_path: Path) -> None:
    with serving("0", tmp_path / "run") as address:
        assert address is not None
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(address, timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.removesuffix("metrics"), timeout=10)


def test_a_port_that_is_taken_is_one_sentence_and_nothing_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (EVAL, ("train", str(write_recipe(tmp_path)))):
            run = tmp_path / "run"
            assert main([*words, "--run", str(run), "--metrics", port]) == 2
            said = capsys.readouterr().err
            assert f"Nothing can listen at 127.0.0.1:{port} for --metrics" in said
            assert "Traceback" not in said and not run.exists()


@pytest.mark.parametrize("text", ["", "x", "70000", "host:", "-1", "host:1:x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="names no port"):
        address_of(text)
    assert address_of("0.0.0.0:9090") == ("0.0.0.0", 9090)
    assert address_of("9090") == ("127.0.0.1", 9090)
