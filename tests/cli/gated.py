"""Parts of runs that wait at a gate, so that a test can interrupt a command exactly there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from palaestra.core.environment import Observation
from palaestra.core.task import Task
from tests.training.mortal import Around

GATE = "PALAESTRA_TESTS_GATE"  # its name; open once a file of that name is in the current folder
ENVIRONMENT = f"{__name__}:Gated/babyai/GoToObjS4"
REACHED = "the gate is reached"


def wait_at(name: str) -> None:
    """Wait, as a long computation would, until the gate of that name is open."""
    if os.environ.get(GATE) != name or Path(name).exists():
        return
    os.write(2, f"{REACHED}\n".encode())  # unbuffered: an interruption cannot repeat it
    while not Path(name).exists():
        time.sleep(0.02)


class Gated(Around):
    """An environment that waits at the gate `reset`."""

    def reset(self, task: Task) -> Observation:
        wait_at("reset")
        return super().reset(task)


def judged(environment: Any) -> bool:
    """Return the verdict of a state judge; every one but the first waits at the gate `judge`."""
    if Path("first").exists():
        wait_at("judge")
    Path("first").touch()
    return True


wait_at("import")
