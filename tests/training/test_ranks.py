"""Training under torchrun: the weights of one process, and no rank that is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palaestra.cli.interrupt import resuming
from palaestra.core.errors import InputError
from palaestra.runtime.machine import launched_rank
from palaestra.store.run_folder import RunFolder
from tests.learning.ranks import free_port
from tests.training.runs import command, environment, palaestra, recorded_episodes, weights_hash

RECIPE = """
summary = "several micro-batches in each update"
deterministic = true
concurrency = 8

[environment]
id = "babyai/GoToObjS4"

[model]
name = "tiny"
context = 512

[model.tiny]
layers = 2
width = 64

[training]
memory = 0.009

[imitation]
demonstrations = 24
epochs = 2
batch = 12
learning_rate = 3e-3

[rl]
steps = 2
tasks = 3
group = 4
learning_rate = 1e-3
control = "coin" # returns that differ, however little it has learned

[evaluation]
tasks = 2
"""


def torchrun(*arguments: str | Path, ranks: int = 2) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    # without `--`, torchrun takes palaestra's --run for a short form of one of its own options
    return [*launcher, "--standalone", "-m", "--", "palaestra", *map(str, arguments)]


def recipe(folder: Path) -> Path:
    file = folder / "ranks.toml"
    file.write_text(RECIPE)
    return file


def launched(*arguments: str | Path, world: int = 2) -> list[subprocess.Popen[str]]:
    """The ranks, started in torchrun's manner, but apart: their exit codes can be seen."""
    port = free_port()
    found = []
    for rank in range(world):
        variables = {"RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
        texts = {name: str(value) for name, value in variables.items()}
        found.append(
            subprocess.Popen(
                command("train", *arguments),
                env={**environment(), "MASTER_ADDR": "127.0.0.1", **texts},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return found


def codes(processes: list[subprocess.Popen[str]], timeout: float = 60) -> list[int]:
    for process in processes:
        process.wait(timeout)
    return [process.returncode for process in processes]


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"the run ended before '{word}'")


def updates(folder: Path) -> list[float]:
    """Tokens processed by each update."""
    with RunFolder.read(folder) as opened:
        rows = [*opened.database.metrics("imitation"), *opened.database.metrics("rl")]
        return [values["processed"] for _, values in rows if "processed" in values]


@pytest.mark.slow
def test_ranks_end_with_the_weights_and_episodes_of_one_process(tmp_path: Path) -> None:
    file = recipe(tmp_path)
    palaestra("train", file, "--run", tmp_path / "one", "--json")
    for count in (2, 3):
        done = subprocess.run(
            torchrun("train", file, "--run", tmp_path / f"{count}", "--json", ranks=count),
            capture_output=True,
            text=True,
            timeout=120,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["success"]["rl"]["n"] == 2  # rank 0 alone prints
        assert weights_hash(tmp_path / f"{count}") == weights_hash(tmp_path / "one")
        assert recorded_episodes(tmp_path / f"{count}") == recorded_episodes(tmp_path / "one")
    assert len(updates(tmp_path / "one")) == 4 + 2
    assert min(updates(tmp_path / "one")) > 3 * 200  # which training.memory allows in one pass


@pytest.mark.slow
def test_bad_input_ends_all_ranks_with_one_sentence(tmp_path: Path) -> None:
    ranks = launched(recipe(tmp_path), "--set", "rl.group=0", "--run", tmp_path / "run")
    outputs = [process.communicate(timeout=60) for process in ranks]
    assert codes(ranks) == [2, 2]
    assert outputs[0][1].startswith("palaestra: The recipe key 'rl.group' cannot be 0")
    assert outputs[1] == ("", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_stops_all_ranks_and_the_run_is_resumed_by_one(tmp_path: Path) -> None:
    file, folder = recipe(tmp_path), tmp_path / "run"
    palaestra("train", file, "--run", tmp_path / "one", "--json")
    ranks = launched(file, "--run", folder)
    wait_for(ranks[0], "imitation")
    for process in reversed(ranks):
        process.send_signal(signal.SIGINT)
    _, output = ranks[0].communicate(timeout=60)
    assert codes(ranks) == [130, 130]
    assert f"nothing is lost. Resume with: {resuming('train', folder)}" in output
    palaestra("train", "--resume", folder, "--json")
    assert weights_hash(folder) == weights_hash(tmp_path / "one")


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_which_ranks_resume(tmp_path: Path) -> None:
    file, folder = recipe(tmp_path), tmp_path / "run"
    palaestra("train", file, "--run", tmp_path / "one", "--json")
    ranks = launched(file, "--run", folder)
    wait_for(ranks[0], "test imitation")
    ranks[1].kill()
    _, output = ranks[0].communicate(timeout=60)
    assert codes(ranks) == [1, -signal.SIGKILL]
    assert "palaestra: infrastructure learner ranks: rank 1 (" in output
    assert f"Finished work is kept. Resume with: {resuming('train', folder)}" in output
    again = launched("--resume", folder, "--json")
    assert codes(again, 120) == [0, 0]
    assert weights_hash(folder) == weights_hash(tmp_path / "one")


@pytest.mark.slow
def test_ranks_end_when_rank_0_is_killed(tmp_path: Path) -> None:
    ranks = launched(recipe(tmp_path), "--run", tmp_path / "run")
    wait_for(ranks[0], "imitation")
    ranks[0].kill()
    _, output = ranks[1].communicate(timeout=30)
    assert codes(ranks) == [-signal.SIGKILL, 1]
    assert "rank 0 (127.0.0.1) ended" in output


def test_variables_that_are_no_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_rank() is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched_rank() is None  # some other launcher's
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(InputError, match="RANK = 'first' is no number"):
        launched_rank()
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(InputError, match="MASTER_PORT = '' is no number"):
        launched_rank()
    monkeypatch.setenv("MASTER_PORT", "29500")
    found = launched_rank()
    assert found is not None
    assert (found.rank, found.world, found.address) == (1, 2, "127.0.0.1:29500")
