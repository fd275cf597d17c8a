"""An evaluation of 10,000 samples, also after a kill, against Inspect AI.

The same work for both: a sample calls a tool twice and then answers; the answer is scored. The
model answers immediately. Each evaluation is a separate process with its default records:
palaestra's run folder (each model call and step is committed before the agent continues), Inspect
AI's log, as an evaluation set. Both run the same number of samples at once.

Then each is killed (SIGKILL, at the same model call) at half of its calls, and started again on the
same folder. The time to resume is from the start of the process to its first model call.

Ratios: their seconds over ours for the whole, their peak memory over ours, their seconds to
resume over ours. Start, imports and end of the process are included:
    python benchmarks/evaluation_inspect.py [--json] [--samples N] [--concurrency N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import Peer, PeerUnavailable, Result, alternate, run
from provenance import ROOT

from palaestra.agents.direct import DirectAgent
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

SAMPLES = 10_000
CONCURRENCY = 50
TICKS = 2  # calls of the tool before the answer, as in the peer's script
REQUIREMENTS = ("inspect-ai==0.3.285",)
SCRIPT = "benchmarks/peers/inspect_evaluation.py"


class Clockwork(Environment):
    """The task: let time pass twice, then say that it is done."""

    @property
    def instructions(self) -> str:
        return "Reply with one word: tick, or done."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self._ticks = 0
        return Observation("Go on.")

    def step(self, action: Action) -> Transition:
        if action.text == "done":
            solved = self._ticks == TICKS
            return Transition(Observation(""), float(solved), terminated=True, success=solved)
        self._ticks += 1
        return Transition(Observation("ok"))


class Mock(ScriptedModel):
    """The model: instant, and deadly at a call of that number."""

    def __init__(self, kill: int) -> None:
        super().__init__(["tick"] * TICKS + ["done"])
        self.kill, self.calls, self.first = kill, 0, 0.0

    async def generate(self, prompt: Prompt) -> Generation:
        await asyncio.sleep(0)  # after all others that ask
        self.calls += 1
        self.first = self.first or time.time()
        if self.calls == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().generate(prompt)


async def world(environment: str) -> AsyncEnvironment:
    return LocalEnvironment(Clockwork())


def live(folder: Path, samples: int, concurrency: int, kill: int) -> None:
    """Evaluate, or go on with a killed evaluation; prints what the peer's script prints."""
    begun = folder.exists()
    mock = Mock(kill)
    with RunFolder.open(folder) if begun else RunFolder.create(folder, {}) as kept:
        rollout = Rollout(
            agent=DirectAgent(),
            make_environment=world,
            models={"agent": mock},
            concurrency=concurrency,
            store=kept.database,
        )
        jobs = [Job(Key("eval", i), Task(f"test/{i}", "clockwork", i)) for i in range(samples)]
        episodes = asyncio.run(rollout.run(jobs))
    found = {
        "first": mock.first,
        "calls": mock.calls,
        "samples": len(episodes),
        "solved": sum(episode.outcome.solved for episode in episodes),
    }
    print(json.dumps(found))


@dataclass(frozen=True, slots=True)
class Life:
    """What one process did."""

    seconds: float
    memory: float  # at its most, in MiB; never told as less than the 40 of the process it is from
    first: float  # seconds from its start to its first model call; of one that lived to its end
    calls: int  # likewise


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, at a given size."""

    command: list[str]
    samples: int
    concurrency: int

    def life(self, folder: Path, kill: int = 0) -> Life:
        """One process; it must end as it is meant to."""
        numbers = map(str, (self.samples, self.concurrency, kill))
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as log:
            began, clock = time.time(), time.perf_counter()
            process = subprocess.Popen(
                [*self.command, str(folder), *numbers], stdout=said, stderr=log, cwd=ROOT
            )
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - clock
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            log.seek(0)
            if process.returncode != (-signal.SIGKILL if kill else 0):
                words = log.read().strip().splitlines()[-1:]
                raise PeerUnavailable(
                    f"{self.command[-1]} ended with {process.returncode}: {words}"
                )
            unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
            memory = used.ru_maxrss * unit / 2**20
            if kill:
                return Life(seconds, memory, 0.0, kill)
            found = json.loads(said.read().splitlines()[-1])
        assert found["samples"] == found["solved"] == self.samples, found
        return Life(seconds, memory, found["first"] - began, found["calls"])

    def whole(self, parent: Path) -> Life:
        """An evaluation that nothing disturbs."""
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            return self.life(Path(folder) / "run")

    def resumed(self, parent: Path) -> tuple[Life, int]:
        """Resume an evaluation killed half-way, and count the repeated calls."""
        needed = self.samples * (TICKS + 1)
        kill = needed // 2
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            self.life(Path(folder) / "run", kill)
            life = self.life(Path(folder) / "run")
        return life, kill - 1 + life.calls - needed


def compare(ours: Side, theirs: Side, rounds: int) -> list[Result]:
    """All rows."""
    default_root().mkdir(parents=True, exist_ok=True)
    lives: dict[str, list[Life]] = {"ours": [], "theirs": []}
    seconds: dict[str, list[Life]] = {"ours": [], "theirs": []}
    repeated: dict[str, list[int]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory(prefix="evaluation-", dir=default_root()) as folder:

        def rate(name: str, side: Side) -> Callable[[], float]:
            def measure() -> float:
                lives[name].append(side.whole(Path(folder)))
                return side.samples / lives[name][-1].seconds

            return measure

        def resume(name: str, side: Side) -> Callable[[], float]:
            def measure() -> float:
                life, again = side.resumed(Path(folder))
                seconds[name].append(life)
                repeated[name].append(again)
                return 1.0 / life.first

            return measure

        whole = alternate(rate("ours", ours), rate("theirs", theirs), rounds)
        back = alternate(resume("ours", ours), resume("theirs", theirs), rounds)
    size = f"evaluation of {ours.samples:,} samples"
    memory = [b.memory / a.memory for a, b in zip(*lives.values(), strict=True)]
    return [
        Result(
            f"{size}, against inspect_ai", whole.ratio, None, whole.low, whole.high,
            figures={
                f"{name}_seconds": statistics.median(life.seconds for life in lives[name])
                for name in lives
            },
        ),
        Result(
            f"{size}, peak memory, against inspect_ai",
            statistics.median(memory), None, min(memory), max(memory),
            figures={
                f"{name}_mebibytes": statistics.median(life.memory for life in lives[name])
                for name in lives
            },
        ),
        Result(
            f"{size}, time to resume after a kill, against inspect_ai",
            back.ratio, None, back.low, back.high,
            figures={
                **{f"{n}_seconds": statistics.median(x.first for x in seconds[n]) for n in seconds},
                **{
                    f"{n}_seconds_to_the_end": statistics.median(x.seconds for x in seconds[n])
                    for n in seconds
                },
                **{f"{n}_calls_repeated": statistics.median(repeated[n]) for n in repeated},
            },
        ),
    ]  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help="samples at once")
    parser.add_argument("--rounds", type=int, default=1, help="each lives six processes")


def measure(chosen: argparse.Namespace) -> list[Result]:
    peer = Peer("overhead-inspect_ai", REQUIREMENTS, SCRIPT)  # the environment of overhead.py
    peer.install()
    size = (chosen.samples, chosen.concurrency)
    ours = Side([sys.executable, str(Path(__file__).resolve()), "--live"], *size)
    theirs = Side([str(peer.python), "-P", str(peer.script)], *size)
    return compare(ours, theirs, chosen.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        live(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        run(__doc__, measure, options)
