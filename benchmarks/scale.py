"""Turns per second of slow environments on 1, 2 and 4 workers on Ray, and in one process.

python benchmarks/scale.py [--json]

Each step of the environment takes 200 ms, and the model's replies cost nothing, so that only the
machinery decides how turns scale. Each worker hosts its environments in four processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import ray

from palaestra.agents.registry import make_agent
from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.ray_launcher import RayLauncher
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Spec, Transition
from palaestra.core.episode import Key
from palaestra.core.message import Message
from palaestra.core.task import Split, TaskSet
from palaestra.environments import registry
from palaestra.environments.wrappers.wrapper import Wrapper
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.store.database import Database

STEP = 0.2  # seconds
PROCESSES = 4  # of each worker, for its environments
SESSIONS, TURNS = 32, 10
INNER = "babyai/GoToObjS6"


class Waiting(Wrapper):
    """A real environment whose steps wait."""

    def __init__(self, name: str) -> None:
        super().__init__(registry.make(name))

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return registry.spec(name)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def step(self, action: Action) -> Transition:
        time.sleep(STEP)
        return super().step(action)


def reply(messages: list[Message]) -> str:
    """Turn left forever."""
    return "left"


async def measure(count: int, folder: Path) -> float:
    """Return turns per second with `count` workers; 0: in this process."""
    id = f"benchmarks.scale:{Waiting.__name__}/{INNER}"
    jobs = [
        Job(Key(f"x{count}", n), task)
        for n, task in enumerate(registry.tasks(id).take(Split.TRAIN, SESSIONS))
    ]
    store = Database.open(folder / "run.sqlite")
    async with AsyncExitStack() as held:
        held.callback(store.close)
        pool = await held.enter_async_context(WorkerPool(1 if count else PROCESSES))
        elsewhere = None
        if count:
            kind = worker_kind(count, count)
            launcher = RayLauncher(None, [kind])
            workers = Workers(launcher, print, kind, processes=PROCESSES, timeout=60.0)
            elsewhere = (await held.enter_async_context(workers)).session
        rollout = Rollout(
            make_agent("direct"),
            pool.make,
            {"agent": ScriptedModel(reply)},
            budget=Budget(turns=TURNS),
            concurrency=SESSIONS,
            store=store,
            elsewhere=elsewhere,
        )
        await rollout.run([Job(Key(f"warm{count}", n), job.task) for n, job in enumerate(jobs)])
        started = time.monotonic()
        episodes = await rollout.run(jobs)
        return sum(len(e.steps) for e in episodes) / (time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ray.init(
        "local", num_cpus=4, include_dashboard=False, log_to_driver=False, namespace="palaestra"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = {count: asyncio.run(measure(count, Path(folder))) for count in (0, 1, 2, 4)}
    ray.shutdown()
    if options.json:
        print(json.dumps({str(count): rate for count, rate in found.items()}))
        return
    for count, rate in found.items():
        name = f"{count} workers on Ray" if count else "one process"
        print(f"{name:20} {rate:6.1f} turns/s  {rate / found[1]:.2f} of one worker")


if __name__ == "__main__":
    main()
