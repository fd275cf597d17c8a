"""Peak memory against a budget that is stated before: is it ever exceeded?

Two cases, each in a process of its own whose peak resident memory the kernel reports:
64 sessions of 2,048 tokens in the resident engine (SmolLM2-135M, bf16; more than its memory
for keys and values holds at once), and 10,000 queued tasks, lived 64 at a time by a tiny
resident model. The ratio is budget over peak:
    python benchmarks/memory.py [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from limits import SMOLLM2, block_weights, head_weights
from measuring import Result, run

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Observation,
    Signals,
    Tool,
    Transition,
)
from palaestra.core.episode import Key
from palaestra.core.model import Sampling
from palaestra.core.task import Task
from palaestra.models.local.engine import MEMORY, Engine
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.rollout.runner import Job, Rollout

SESSIONS, CONTEXT, SAMPLED = 64, 2048, 8
TASKS, TURNS = 10_000, 2
MIB = 2**20
PROCESS = 512 * MIB  # the interpreter, torch and palaestra
WORK = 512 * MIB  # what one step of the engine needs beyond weights and cache
CACHE = 64 * MIB  # keys and values of the tiny model
# set after the first peaks were seen (4 to 5 KB a task): a bound to keep, not a prediction
TASK = 8 * 1024  # bytes of a task that is queued, run and kept as an episode

BUDGETS = {
    "sessions": PROCESS + WORK + 2 * (block_weights(SMOLLM2) + head_weights(SMOLLM2)) + MEMORY,
    "tasks": PROCESS + CACHE + TASKS * TASK,
}
NAMES = {
    "sessions": f"memory, {SESSIONS} sessions of {CONTEXT:,} tokens, against the budget",
    "tasks": f"memory, {TASKS:,} queued tasks, against the budget",
}


def sessions() -> None:
    """Fill the context of every session."""
    engine = Engine(workload.network(), frozenset(), slots=SESSIONS, context=CONTEXT)
    dice = random.Random(0)
    requests = []
    for number in range(SESSIONS):
        prompt = [dice.randrange(100, 49_000) for _ in range(CONTEXT - SAMPLED)]
        requests.append(engine.submit(prompt, Sampling(1.0, SAMPLED), number))
    while engine.pending:
        engine.step()
    assert all(len(request.completion) == SAMPLED for request in requests)


class Room(AsyncEnvironment):
    """A world of a few words."""

    instructions = "Answer with one word."
    tools: tuple[Tool, ...] = ()
    capabilities: frozenset[Capability] = frozenset()

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.turn = 0
        return Observation(f"task {task.seed}: left or right"), Signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        self.turn += 1
        return Transition(Observation("go on"), terminated=self.turn == TURNS), Signals()

    async def oracle(self) -> list[Action]:
        raise NotImplementedError("this world has no solution")

    async def admissible(self) -> list[str]:
        raise NotImplementedError("this world has no list of actions")

    async def close(self) -> None:
        """Holds nothing."""


def tasks() -> None:
    """Queue all tasks, and run them."""
    renderer = ChatMLRenderer(learn_vocabulary(["task 0: left or right", Room.instructions], 300))
    network = tiny_network(
        renderer.tokenizer.get_vocab_size(), layers=2, width=64, heads=2, context=256, seed=0
    )
    model = ResidentModel("tiny", network, renderer, slots=SESSIONS, context=256, memory=CACHE)

    async def world(kind: str) -> AsyncEnvironment:
        return Room()

    rollout = Rollout(
        DirectAgent(),
        world,
        {"agent": model},
        budget=Budget(turns=TURNS),
        sampling=Sampling(1.0, SAMPLED),
        concurrency=SESSIONS,
    )
    jobs = [
        Job(Key("memory", number), Task(f"task/{number}", "room", seed=number))
        for number in range(TASKS)
    ]
    episodes = asyncio.run(rollout.run(jobs))
    assert len(episodes) == TASKS and all(len(e.steps) == TURNS for e in episodes)


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # unlike getrusage, it does not count what ran before exec
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def case(name: str) -> Result:
    done = subprocess.run(
        [sys.executable, __file__, "--case", name], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"the case '{name}' failed: {done.stderr.strip()[-500:]}")
    peak, budget = json.loads(done.stdout)["peak"], BUDGETS[name]
    return Result(
        name=NAMES[name],
        ratio=budget / peak,
        goal=1.0,
        low=budget / peak,
        high=budget / peak,
        figures={"budget MiB": budget / MIB, "peak MiB": peak / MIB},
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each case."""
    return [case(name) for name in BUDGETS]


def main() -> None:
    """One case, where this is its process; else the benchmark."""
    if len(sys.argv) == 3 and sys.argv[1] == "--case":
        {"sessions": sessions, "tasks": tasks}[sys.argv[2]]()
        print(json.dumps({"peak": peak_bytes()}))
        return
    run(__doc__, measure)


if __name__ == "__main__":
    main()
