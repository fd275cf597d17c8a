"""Training under torchrun: the weights of one process, and no rank that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.runs import environment, palaestra, recorded_episodes, weights_hash

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
memory = 0.034

[imitation]
demonstrations = 32
epochs = 2
learning_rate = 3e-3

[rl]
steps = 2
tasks = 3
group = 4
learning_rate = 1e-3

[evaluation]
tasks = 2
"""


def torchrun(*arguments: str | Path, ranks: int = 2) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    # without `--`, torchrun takes palaestra's --run for a short form of one of its own options
    return [*launcher, "--master-port", "0", "-m", "--", "palaestra", *map(str, arguments)]


def recipe(folder: Path) -> Path:
    file = folder / "ranks.toml"
    file.write_text(RECIPE)
    return file


def run(
    *arguments: str | Path, ranks: int = 2, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        torchrun(*arguments, ranks=ranks),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
    )
