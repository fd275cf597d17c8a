"""Events per second from a worker's sessions into the record, against sessions of this process.

python benchmarks/recorder.py [--sessions N] [--rounds N] [--json]

The same sessions, with an environment and a model that take no time, write into the same kind of
store: here, from one worker process over its connection to the driver, and the same while another
process keeps a copy that has each event before its session goes on. Rounds alternate. The
delay is that from a step of the environment in the worker to the moment when the driver, having
committed it, asks the model for the next reply; it is measured at full speed, where sessions wait
for each other, and where each reply takes 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from palaestra.agents.direct import DirectAgent
from palaestra.cluster.copies import Copies, copy_kind
from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.placement import Kind
from palaestra.cluster.worker_messages import Call
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Key
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Split, TaskSet
from palaestra.environments import registry
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.run_folder import RunFolder

TURNS = 40
REPLY = 0.1  # seconds of a reply in the measurement of delays
SERVE = (
    "import pickle, sys; from importlib import import_module; "
    "import_module(sys.argv[1]).serve(pickle.loads(bytes.fromhex(sys.stdin.readline())))"
)


class Clockwork(Environment):
    """An environment that shows the time of its step, by the clock that all processes share."""

    @property
    def instructions(self) -> str:
        return "Reply with one word: tick."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: object) -> Observation:
        return Observation(str(time.monotonic()))

    def step(self, action: Action) -> Transition:
        return Transition(Observation(str(time.monotonic())))


class Ticking(Model):
    """A model that notes how long ago the last step happened."""

    name = "ticking"

    def __init__(self, seconds: float) -> None:
        self.seconds, self.delays = seconds, list[float]()

    async def generate(self, prompt: Prompt) -> Generation:
        last = prompt.messages[-1].text.split()[-1]
        self.delays.append(time.monotonic() - float(last))
        await asyncio.sleep(self.seconds)
        return given_generation("tick", prompt, self)


class OneProcess:
    """A launcher of one worker process on this machine."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes]

    def room(self, kind: Kind) -> int:
        return 1

    def leaving(self, kind: Kind) -> set[int]:
        return set()

    async def start(self, kind: Kind, call: Call) -> str:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, kind.module], stdin=subprocess.PIPE
        )
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(pickle.dumps(call).hex().encode() + b"\n")
        stdin.close()
        return f"status {await asyncio.to_thread(self._process.wait)}"

    def kill(self, kind: Kind, birth: int) -> None:
        self._process.kill()

    def lack(self, kind: Kind) -> str:
        return "no process"

    def close(self, kind: Kind) -> None:
        self._process.kill()


async def measure(
    folder: Path, sessions: int, there: bool, reply: float, *, copied: bool = False
) -> tuple[float, float]:
    """Return events per second, and the median delay in milliseconds."""
    id = f"benchmarks.recorder:{Clockwork.__name__}"
    taken = registry.tasks(id).take(Split.TRAIN, sessions)
    model = Ticking(reply)

    async def here(name: str) -> LocalEnvironment:
        return LocalEnvironment(registry.make(name))

    async with AsyncExitStack() as held:
        run = held.enter_context(RunFolder.create(folder, {}))
        elsewhere = None
        if copied:
            copies = Copies(OneProcess(), lambda said: None, copy_kind(1), run.database)
            await held.enter_async_context(copies)
        if there:
            workers = Workers(OneProcess(), print, worker_kind(1, 1), processes=0)
            elsewhere = (await held.enter_async_context(workers)).session
        rollout = Rollout(
            DirectAgent(),
            here,
            {"agent": model},
            budget=Budget(turns=TURNS),
            concurrency=sessions,
            store=run.database,
            elsewhere=elsewhere,
        )
        await rollout.run([Job(Key("warm", n), task) for n, task in enumerate(taken)])
        model.delays.clear()
        started = time.monotonic()
        episodes = await rollout.run([Job(Key("x", n), task) for n, task in enumerate(taken)])
        seconds = time.monotonic() - started
    events = sum(len(e.steps) + len(e.calls) for e in episodes)
    assert events == 2 * TURNS * sessions
    return events / seconds, 1000 * statistics.median(model.delays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALAESTRA_COPIES"] = str(Path(folder) / "copies")
        for number in range(options.rounds):
            found = {}
            for name, there, reply, copied in (
                ("here", False, 0.0, False),
                ("worker", True, 0.0, False),
                ("paced", True, REPLY, False),
                ("copied", True, 0.0, True),
                ("copied and paced", True, REPLY, True),
            ):
                path = Path(folder) / f"{name}-{number}"
                work = measure(path, options.sessions, there, reply, copied=copied)
                found[name] = asyncio.run(work)
            rounds.append(found)
    if options.json:
        print(json.dumps(rounds))
        return
    for found in rounds:
        (here, _), (there, full), (paced, delay) = found["here"], found["worker"], found["paced"]
        print(
            f"here {here:6.0f} events/s, one worker {there:6.0f}, ratio {there / here:.2f}; "
            f"delay {full:.1f} ms at full speed, {delay:.1f} ms at {paced:.0f} events/s"
        )
        (there, full), (paced, delay) = found["copied"], found["copied and paced"]
        print(
            f"  with a copy in another process: one worker {there:6.0f}, ratio {there / here:.2f}; "
            f"delay {full:.1f} ms at full speed, {delay:.1f} ms at {paced:.0f} events/s"
        )


if __name__ == "__main__":
    main()
