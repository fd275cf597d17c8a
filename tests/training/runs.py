"""A real run, small enough for tests: the tiny transformer on BabyAI, end to end."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.store.run_folder import RunFolder

RECIPE = """
summary = "a few minutes' run in a few seconds"
deterministic = true
concurrency = 8
checkpoint_every = 2

[environment]
id = "babyai/GoToObjS4"
transfer = "babyai/GoToLocalS5N2"

[model]
name = "tiny"
context = 512

[model.tiny]
layers = 2
width = 64

[imitation]
demonstrations = 64
epochs = 4
learning_rate = 3e-3

[rl]
steps = 4
tasks = 4
group = 4
learning_rate = 1e-3

[evaluation]
tasks = 8
transfer_tasks = 4
"""


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "small.toml"
    file.write_text(text)
    return file


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "palaestra", *map(str, arguments)]


def started(*arguments: str | Path, until: str) -> subprocess.Popen[str]:
    """Start the command line in a process of its own; return it once a line on stderr says so."""
    process = subprocess.Popen(
        command(*arguments), env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if until in line:
            break
    return process


def palaestra(
    *arguments: str | Path, check: int | None = 0, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own; `check` is the exit code it must have."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, env=environment()
    )
    if check is not None:
        assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def in_this_process(*arguments: str | Path) -> str:
    """Run the command line here; return what it prints.

    It computes with one thread, as `palaestra` does: with others, products are rounded otherwise.
    """
    threads, output = torch.get_num_threads(), io.StringIO()
    torch.set_num_threads(1)
    try:
        with redirect_stdout(output):
            assert main([str(argument) for argument in arguments]) == 0
    finally:
        torch.set_num_threads(threads)
    return output.getvalue()


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def weights_hash(run: Path) -> str:
    """Of the final weights, bit for bit."""
    return hashlib.sha256((run / "final" / "model.safetensors").read_bytes()).hexdigest()


def recorded_episodes(run: Path) -> list[tuple[object, ...]]:
    """Every episode of a run, without what depends on the clock."""
    with RunFolder.read(run) as opened:
        return [
            essence(episode)
            for phase in sorted(opened.database.phases())
            for episode in opened.database.episodes(phase)
        ]


def essence(episode: Episode) -> tuple[object, ...]:
    calls = [(c.parent, c.prompt, c.completion, c.logprobs, c.version) for c in episode.calls]
    steps = [(s.action, s.transition, s.before) for s in episode.steps]
    return (episode.key, episode.task, episode.outcome, calls, steps)
