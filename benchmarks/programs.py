"""Program-aware scheduling: attained service against first come, first served.

Mean completion of short and long programs on the resident engine, with fewer slots than calls.

Short programs make 2 calls, one after the other. Long ones are, in three mixes: a search (4 rounds
of 8 branches that share their past; one program in four), one long episode (32 calls one after the
other; one in four), or a map over 64 pieces, twice (one in ten). Programs arrive at random, at 0.9
or 1.25 times the rate that the slots can serve: each mix and load is a row. Arrivals are told by
the number of the engine's steps, so both schedules get the same ones whatever else the machine
does. The ratio is the mean time from arrival to completion, first come over attained, in
alternating rounds:
    python benchmarks/programs.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import Result, alternate, run

from palaestra.core.model import Sampling
from palaestra.models.engine import Engine
from palaestra.models.network import DecoderNetwork
from palaestra.models.request import Request
from palaestra.models.schedule import schedule_of

PROGRAMS = 60
LOADS = 0.9, 1.25  # calls that arrive per call that the slots can serve
NEW, SAMPLED, SLOTS, CONTEXT = 16, 8, 8, 1024
SHORT = 2, 1  # rounds of calls, calls a round
GOAL = 2.0


@dataclass(frozen=True, slots=True)
class Mix:
    """Short programs and one kind of long ones."""

    name: str
    long: tuple[int, int]  # rounds, calls a round
    share: float  # of long ones among all

    @property
    def calls(self) -> float:
        """Of a program, in the mean."""
        return self.share * math.prod(self.long) + (1 - self.share) * math.prod(SHORT)


MIXES = (
    Mix("searches of 4 rounds of 8", (4, 8), 0.25),
    Mix("episodes of 32", (32, 1), 0.25),
    Mix("maps of 2 rounds of 64", (2, 64), 0.1),
)


@dataclass(slots=True)
class Program:
    """Rounds of calls; the calls of a round are made at once and extend the same past."""

    number: int
    rounds: int
    branches: int
    arrival: int  # after so many steps of the engine
    history: list[int] = field(default_factory=list)
    done: int = 0  # rounds
    calls: list[Request] = field(default_factory=list)  # of the present round
    started: float = 0.0
    seconds: float = 0.0  # from arrival to completion


def programs(seed: int, mix: Mix, load: float) -> list[Program]:
    """The programs in the order of their arrival."""
    dice = random.Random(seed)
    long = round(PROGRAMS * mix.share)
    kinds = [mix.long] * long + [SHORT] * (PROGRAMS - long)
    dice.shuffle(kinds)
    served = SLOTS / SAMPLED  # calls a step
    found, clock = [], 0.0
    for number, (rounds, width) in enumerate(kinds):
        found.append(Program(number, rounds, width, arrival=int(clock)))
        clock += dice.expovariate(load * served / mix.calls)
    return found


def ask(engine: Engine, program: Program) -> None:
    """Make the calls of the program's next round."""
    dice = random.Random(f"{program.number} {program.done}")
    program.calls = []
    for branch in range(program.branches):
        new = [dice.randrange(100, 49_000) for _ in range(NEW)]
        seed = 1000 * program.number + 100 * program.done + branch
        sampling = Sampling(1.0, SAMPLED)
        request = engine.submit([*program.history, *new], sampling, seed, program.number)
        program.calls.append(request)


def lived(engine: Engine, arriving: Sequence[Program]) -> list[float]:
    """Run all programs; returns the seconds that each one took."""
    engine.clear()
    steps, ahead, active = 0, list(arriving), list[Program]()
    while ahead or active:
        while ahead and steps >= ahead[0].arrival:
            program = ahead.pop(0)
            program.started = time.perf_counter()
            ask(engine, program)
            active.append(program)
        engine.step()  # without a request, time passes only
        steps += 1
        for program in list(active):
            if any(call.finish is None for call in program.calls):
                continue
            program.done += 1
            first = program.calls[0]
            program.history = [*first.tokens, *first.completion]  # the search goes on from there
            if program.done < program.rounds:
                ask(engine, program)
            else:
                program.seconds = time.perf_counter() - program.started
                active.remove(program)
    return [program.seconds for program in arriving]


def completions(
    network: DecoderNetwork, schedule: str, mix: Mix, load: float
) -> Callable[[], float]:
    """Measures one round: programs completed per second of mean waiting (higher is better)."""
    engine = Engine(
        network, frozenset(), slots=SLOTS, context=CONTEXT, schedule=schedule_of(schedule)
    )
    seeds = itertools.count(1)

    def once() -> float:
        return 1 / statistics.fmean(lived(engine, programs(next(seeds), mix, load)))

    return once


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each mix and each load."""
    network = workload.network()
    results = []
    for mix, load in itertools.product(MIXES, LOADS):
        ours = completions(network, "attained", mix, load)
        theirs = completions(network, "fcfs", mix, load)
        measured = alternate(ours, theirs, options.rounds)
        results.append(
            Result(
                name=f"programs of 2 calls and {mix.name}, load {load:g}: "
                "attained service against first come",
                ratio=measured.ratio,
                goal=GOAL,
                low=measured.low,
                high=measured.high,
                figures={
                    "attained mean s": 1 / measured.ours,
                    "first come mean s": 1 / measured.theirs,
                },
            )
        )
    return results


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
