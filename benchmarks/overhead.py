"""What the harness costs per turn: a scripted model, a trivial tool, 1,000 sessions at once.

palaestra runs its sessions as `palaestra eval` does: the same rollout, each model call and
each step committed to the run's database before the agent sees it. The world is in this
process, as the peers' tools are; the model gives way to the other sessions at each call.
The peers run tens or hundreds of sessions at once in the way their documentation recommends
(ten threads, where sessions need threads), and record what they record by default (Inspect
AI: its log; the others: nothing).

The figures are microseconds per turn, starting and finishing the sessions included. Ratios:
the goal of 100 microseconds over ours, at 10, 100 and 1,000 turns; ours at 10 turns over
ours at 1,000; each peer's over ours, and the best peer's; 0.2 seconds over the time that
`import palaestra` takes:
    python benchmarks/overhead.py [--json] [--peers NAME …] [--sessions N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from measuring import Peer, PeerUnavailable, Result, alternate, run

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Environment,
    Observation,
    Transition,
)
from palaestra.core.episode import Key
from palaestra.core.model import Generation, Prompt
from palaestra.core.task import Task, TaskSet
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.run_folder import RunFolder, default_root

SESSIONS = 1000
LENGTHS = (10, 100, 1000)  # turns
GOAL = 100.0  # microseconds per turn
FLAT = 0.8  # of the cost at the fewest turns over that at the most
IMPORT = 0.2  # seconds
BEST = 2.0  # cost of the best peer over ours
THREADS = 10  # of peers whose sessions need one each; see their scripts
COMPARED = 20  # turns of the sessions that are compared with peers


@dataclass(frozen=True, slots=True)
class Harness:
    """A peer of this benchmark."""

    requirements: tuple[str, ...]
    sessions: int  # at once
    goal: float | None = None  # its cost over ours


HARNESSES = {
    "inspect_ai": Harness(("inspect-ai==0.3.285",), 50, goal=50.0),
    "langgraph": Harness(("langgraph==1.2.22",), 200),
    "smolagents": Harness(("smolagents==1.26.0",), 100),
    "pydantic_ai": Harness(("pydantic-ai-slim==2.68.0",), 200),
    "mini_swe_agent": Harness(("mini-swe-agent==2.4.6",), 100),
    "autogen": Harness(("autogen-agentchat==0.7.5", "autogen-ext==0.7.5"), 100),
}


class Clockwork(Environment):
    """The trivial tool: time passes."""

    @property
    def instructions(self) -> str:
        return "Reply with one word: tick."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        return Observation("Go on.")

    def step(self, action: Action) -> Transition:
        return Transition(Observation("ok"))


class Instant(ScriptedModel):
    """Answers at once, after all others that ask."""

    async def generate(self, prompt: Prompt) -> Generation:
        await asyncio.sleep(0)
        return await super().generate(prompt)


async def world(environment: str) -> AsyncEnvironment:
    return LocalEnvironment(Clockwork())


def ours(sessions: int, turns: int) -> float:
    """Microseconds per turn."""
    jobs = [Job(Key("bench", i), Task(f"test/{i}", "clockwork", i)) for i in range(sessions)]
    default_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="overhead-", dir=default_root()) as folder:
        kept = RunFolder.create(Path(folder) / "run", {})
        rollout = Rollout(
            agent=DirectAgent(),
            make_environment=world,
            models={"agent": Instant(lambda messages: "tick")},
            budget=Budget(turns=turns),
            concurrency=sessions,
            store=kept.database,
        )
        gc.collect()
        started = time.perf_counter()
        episodes = asyncio.run(rollout.run(jobs))
        kept.close()
        seconds = time.perf_counter() - started
    assert all(len(episode.steps) == len(episode.calls) == turns for episode in episodes)
    return 1e6 * seconds / (sessions * turns)


def theirs(peer: Peer, sessions: int) -> dict[str, float]:
    """Microseconds per turn: `seconds` at once, and, if the peer reports it, `one_by_one`."""
    answer = peer.ask({"sessions": sessions, "turns": COMPARED})
    return {name: 1e6 * float(took) / (sessions * COMPARED) for name, took in answer.items()}


def by_length(sessions: int, rounds: int) -> list[Result]:
    """Our cost at each number of turns, and how flat it is."""
    ours(sessions, LENGTHS[0])  # warm up
    found: dict[int, list[float]] = {turns: [] for turns in LENGTHS}
    for _ in range(rounds):
        for turns in LENGTHS:
            found[turns].append(ours(sessions, turns))
    results = []
    for turns, costs in found.items():
        cost = statistics.median(costs)
        results.append(
            Result(
                name=f"overhead, {sessions:,} sessions x {turns:,} turns, against {GOAL:g} µs",
                ratio=GOAL / cost,
                goal=1.0,
                low=GOAL / max(costs),
                high=GOAL / min(costs),
                figures={"microseconds_per_turn": cost},
            )
        )
    few, many = found[LENGTHS[0]], found[LENGTHS[-1]]
    flat = [a / b for a, b in zip(few, many, strict=True)]
    results.append(
        Result(
            name=f"overhead, cost at {LENGTHS[0]} turns over that at {LENGTHS[-1]:,}",
            ratio=statistics.median(flat),
            goal=FLAT,
            low=min(flat),
            high=max(flat),
        )
    )
    return results


def against(name: str, sessions: int, rounds: int) -> Result:
    """Turns per second of ours over theirs."""
    harness = HARNESSES[name]
    alone: list[float] = []  # of peers whose sessions need a thread each

    def other(peer: Peer) -> float:
        costs = theirs(peer, harness.sessions)
        alone.extend(cost for kind, cost in costs.items() if kind == "one_by_one")
        return 1e6 / costs["seconds"]

    script = f"benchmarks/peers/{name}.py"
    with Peer(f"overhead-{name}", harness.requirements, script) as peer:
        theirs(peer, 2)  # warm up
        found = alternate(lambda: 1e6 / ours(sessions, COMPARED), lambda: other(peer), rounds)
    figures = {
        "ours_microseconds_per_turn": 1e6 / found.ours,
        "their_microseconds_per_turn": 1e6 / found.theirs,
        "their_sessions_at_once": float(harness.sessions),
    }
    if alone:
        figures["their_sessions_at_once"] = float(THREADS)
        figures["their_microseconds_per_turn_one_by_one"] = statistics.median(alone)
    return Result(
        f"overhead, against {name}", found.ratio, harness.goal, found.low, found.high,
        figures=figures,
    )  # fmt: skip


def compared(names: list[str], sessions: int, rounds: int) -> list[Result]:
    """Every peer that can be had, and the best of them."""
    results: list[Result] = []
    for name in names:
        try:
            results.append(against(name, sessions, rounds))
        except PeerUnavailable as reason:
            print(f"not measured: {reason}", file=sys.stderr)
    if results:
        best = min(results, key=lambda result: result.ratio)
        results.append(replace(best, name="overhead, against the best peer", goal=BEST))
    return results


def importing(rounds: int) -> Result:
    """Seconds of `import palaestra`, and of all that a rollout with a store needs."""
    alone = [_import_seconds("palaestra") for _ in range(rounds)]
    whole = "palaestra.rollout.runner, palaestra.store.run_folder, palaestra.agents.direct"
    needed = [_import_seconds(whole) for _ in range(rounds)]
    return Result(
        name=f"import palaestra, against {IMPORT:g} s",
        ratio=IMPORT / statistics.median(alone),
        goal=1.0,
        low=IMPORT / max(alone),
        high=IMPORT / min(alone),
        figures={
            "seconds": statistics.median(alone),
            "seconds_with_rollout_and_store": statistics.median(needed),
        },
    )


def _import_seconds(modules: str) -> float:
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peers", nargs="*", choices=HARNESSES, default=list(HARNESSES), metavar="NAME",
        help=f"which to compare with: {', '.join(HARNESSES)} (all)",
    )  # fmt: skip
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="of ours, at once")
    parser.add_argument("--rounds", type=int, default=3)


def measure(chosen: argparse.Namespace) -> list[Result]:
    return [
        importing(5),
        *by_length(chosen.sessions, chosen.rounds),
        *compared(chosen.peers, chosen.sessions, chosen.rounds),
    ]


if __name__ == "__main__":
    run(__doc__, measure, options)
