"""How busy the engine stays while environments are slow: Pareto-distributed latency, 64 sessions.

Every step of the world takes a time drawn from a Pareto distribution with α = 1.2, whose mean
is that of a generation (both measured at 64 sessions). Asynchronous: palaestra's `Rollout` over
the resident model. Synchronous: all sessions of a batch wait for the slowest of each turn, with
the same latencies; nothing runs while they wait, so that wait is counted and not slept.

The ratio is the share of the time that the engine computes, from the first episode to the
moment when the last one of the queue begins (a training run has no end of its queue; the whole
run, its tail of slow episodes included, is among the figures):
    python benchmarks/latency.py [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import Result, run

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Observation,
    Signals,
    Tool,
    Transition,
)
from palaestra.core.episode import Episode, Key, derive_seed
from palaestra.core.model import Sampling
from palaestra.core.task import Task
from palaestra.models.local.engine import Engine
from palaestra.models.local.resident import ResidentModel
from palaestra.models.registry import renderer_of
from palaestra.rollout.runner import Job, Rollout

SESSIONS, EPISODES, TURNS, SAMPLED, CONTEXT = 64, 192, 6, 8, 1024
ALPHA = 1.2
GOAL = 0.90
WORDS = "red green blue grey yellow purple door key ball box wall left right ahead".split()


def latency(seed: int, turn: int, scale: float) -> float:
    """Seconds that the world takes for a turn; of a Pareto distribution with minimum `scale`."""
    return scale * random.Random(derive_seed("latency", seed, turn)).paretovariate(ALPHA)


def observation(seed: int, turn: int) -> str:
    dice = random.Random(derive_seed("observation", seed, turn))
    return "You see: " + ", ".join(" ".join(dice.sample(WORDS, 2)) for _ in range(6)) + "."


class Watch:
    """Notes when the last episode of the queue begins."""

    def __init__(self, model: ResidentModel, episodes: int) -> None:
        self.model, self.left = model, episodes
        self.started = time.perf_counter()
        self.seconds = self.busy = 0.0  # until the last episode began
        self.sampled = 0
        model.take_throughput()

    def begins(self) -> None:
        self.left -= 1
        if self.left == 0:
            done = self.model.take_throughput()
            self.seconds = time.perf_counter() - self.started
            self.busy, self.sampled = done.seconds, done.sampled


class SlowWorld(AsyncEnvironment):
    """Describes random things, slowly."""

    def __init__(self, scale: float, watch: Watch) -> None:
        self.instructions = "Say in one word what to do next."
        self.tools: tuple[Tool, ...] = ()
        self.capabilities: frozenset[Capability] = frozenset()
        self.scale, self.watch = scale, watch

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.watch.begins()
        self.seed, self.turn = task.seed, 0
        return Observation(observation(self.seed, 0)), Signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        await asyncio.sleep(latency(self.seed, self.turn, self.scale))
        self.turn += 1
        seen = Observation(observation(self.seed, self.turn))
        return Transition(seen, terminated=self.turn == TURNS), Signals()

    async def oracle(self) -> list[Action]:
        raise NotImplementedError("this world has no solution")

    async def admissible(self) -> list[str]:
        raise NotImplementedError("this world has no list of actions")

    async def close(self) -> None:
        """Holds nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """One asynchronous run."""

    busy: float  # share of the time until the last episode began
    whole: float  # share of the whole time
    rate: float  # sampled tokens per second until the last episode began
    generation: float  # mean seconds of a generation
    sessions: list[list[list[int]]]  # prompt deltas of each episode, turn by turn


def asynchronous(model: ResidentModel, episodes: int, scale: float) -> Run:
    model.engine.clear()
    watch = Watch(model, episodes)

    async def world(kind: str) -> AsyncEnvironment:
        return SlowWorld(scale, watch)

    rollout = Rollout(
        DirectAgent(),
        world,
        {"agent": model},
        sampling=Sampling(1.0, SAMPLED),
        concurrency=SESSIONS,
    )
    jobs = [
        Job(Key("latency", number), Task(f"task/{number}", "slow", seed=number))
        for number in range(episodes)
    ]
    lived = asyncio.run(rollout.run(jobs))
    seconds = time.perf_counter() - watch.started
    busy = watch.busy + model.take_throughput().seconds
    return Run(
        busy=watch.busy / watch.seconds,
        whole=busy / seconds,
        rate=watch.sampled / watch.seconds,
        generation=statistics.mean(call.seconds for e in lived for call in e.calls),
        sessions=[_deltas(episode) for episode in lived],
    )


def _deltas(episode: Episode) -> list[list[int]]:
    return [list(call.prompt) for call in episode.calls]


def synchronous(
    engine: Engine, sessions: list[list[list[int]]], scale: float
) -> tuple[float, float]:
    """Busy share and sampled tokens per second with a barrier after each turn."""
    engine.clear()
    busy = waited = 0.0
    sampled = 0
    for first in range(0, len(sessions), SESSIONS):
        batch = sessions[first : first + SESSIONS]
        histories: list[list[int]] = [[] for _ in batch]
        for turn in range(TURNS):
            started = time.perf_counter()
            requests = []
            for number, (history, deltas) in enumerate(zip(histories, batch, strict=True)):
                history += deltas[turn]
                seed = derive_seed(first + number, turn)
                requests.append(engine.submit(history, Sampling(1.0, SAMPLED), seed))
            while engine.pending:
                engine.step()
            busy += time.perf_counter() - started
            for history, request in zip(histories, requests, strict=True):
                history += request.completion
                sampled += len(request.completion)
            waited += max(latency(first + i, turn, scale) for i in range(len(batch)))
    return busy / (busy + waited), sampled / (busy + waited)


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    folder = workload.checkpoint()
    model = ResidentModel(
        "smollm2-135m", workload.network(), renderer_of(folder), slots=SESSIONS, context=CONTEXT
    )
    asynchronous(model, SESSIONS, scale=1e-6)  # warm up
    generation = asynchronous(model, 2 * SESSIONS, scale=1e-6).generation
    scale = generation * (ALPHA - 1) / ALPHA  # the mean of the distribution is `generation`
    runs: list[Run] = []
    barriers: list[tuple[float, float]] = []
    for _ in range(options.rounds):
        runs.append(asynchronous(model, EPISODES, scale))
        barriers.append(synchronous(model.engine, runs[-1].sessions, scale))
    shares = [each.busy for each in runs]
    return [
        Result(
            name=f"engine busy, {SESSIONS} sessions, Pareto latency (1.2)",
            ratio=statistics.median(shares),
            goal=GOAL,
            low=min(shares),
            high=max(shares),
            figures={
                "synchronous busy share": statistics.median(share for share, _ in barriers),
                "palaestra tokens/s": statistics.median(each.rate for each in runs),
                "synchronous tokens/s": statistics.median(rate for _, rate in barriers),
                "busy share with the tail": statistics.median(each.whole for each in runs),
                "mean latency s": generation,
                "mean generation s": statistics.median(each.generation for each in runs),
            },
        )
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of both (3)")


if __name__ == "__main__":
    run(__doc__, measure, _options)
