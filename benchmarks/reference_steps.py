"""Steps per second of an environment of palaestra that does what its known solutions do.

For benchmarks/apps.py, in its own process and in a worker whose environment has the packages of a
family. Only steps and state keys are timed, by the processor time of the process.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks

_worlds: dict[str, Any] = {}  # by id, with the solutions that were computed


def rate(id: str, seconds: float, count: int = 20) -> float:
    """Return steps per second: in `count` tasks one after the other, each with its solution."""
    world, plans = _worlds.setdefault(id, (make(id), {}))
    source, spent, steps = tasks(id), 0.0, 0
    for number in itertools.cycle(range(count)):
        task = source.task(Split.TEST, number)
        world.reset(task)
        if number not in plans:
            plans[number] = world.oracle()
            world.reset(task)
        for action in plans[number]:
            started = time.process_time()
            world.step(action)
            world.state_key()
            spent += time.process_time() - started
            steps += 1
        if spent >= seconds:
            return steps / spent
    raise AssertionError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    return {"rate": rate(request["id"], request["seconds"], request["count"])}
