"""Runs of stages that end where they stand, within this process and by SIGKILL."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palaestra.store import checkpoint
from palaestra.training import run_context
from palaestra.training.accounting import Accounts
from tests.training.runs import command, environment
from tests.training.stages.made import run_stages, written


class Stop(Exception):
    """Ends a run where it stands, as a kill does."""


def stopped(folder: Path, text: str, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run stages until just before the `cut`-th time that a checkpoint or an account is written."""
    left = [cut]

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Stop
            return real(*args, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(run_context.checkpoint, "save", dying(checkpoint.save))
        patch.setattr(Accounts, "finish_stage", dying(Accounts.finish_stage))
        with pytest.raises(Stop):
            run_stages(folder, text)


def killed(folder: Path, text: str, seed: int) -> Path:
    """Run stages to their end, killed three times at random moments; return the run."""
    rng, run = random.Random(seed), folder / "run"
    arguments: list[str | Path] = ["train", written(folder, text), "--run", run]
    for _ in range(3):
        process = subprocess.Popen(
            command(*arguments), env=environment(), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        process.stderr.readline()  # the run's folder exists
        time.sleep(rng.uniform(0.0, 6.0))
        process.kill()
        process.wait()
        arguments = ["train", "--resume", run]
    subprocess.run(command(*arguments), env=environment(), check=True, capture_output=True)
    return run
