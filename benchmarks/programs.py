"""Program-aware scheduling: attained service against first come, first served.

Mean completion of short and long programs on the resident engine, with fewer slots than calls.

Three of four programs are short: 2 calls, one after the other. The others make 32 calls, as a
tree search does (4 rounds of 8 branches that share their past) or one after the other, as one
long episode. Programs arrive at random, 1.25 or 2.5 times as fast as the engine works: each of
these is a row. Arrivals are told by the number of tokens that it has run, so both schedules get
the same ones whatever else the machine does. The ratio is the mean time from arrival to
completion, first come over attained, in alternating rounds:
    python benchmarks/programs.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
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

SHORT, LONG, SHORT_CALLS, LONG_CALLS = 36, 12, 2, 32
LOADS = 1.25, 2.5  # tokens of arriving programs per token that the engine runs
NEW, SAMPLED, SLOTS, CONTEXT = 16, 8, 8, 1024
GOAL = 2.0


@dataclass(slots=True)
class Program:
    """Rounds of calls; the calls of a round are made at once and extend the same past."""

    number: int
    rounds: int
    branches: int
    arrival: int  # in tokens run by the engine
    history: list[int] = field(default_factory=list)
    done: int = 0  # rounds
    calls: list[Request] = field(default_factory=list)  # of the present round
    started: float = 0.0
    seconds: float = 0.0  # from arrival to completion


def programs(seed: int, branches: int, load: float) -> list[Program]:
    """The programs in the order of their arrival."""
    dice = random.Random(seed)
    kinds = [True] * LONG + [False] * SHORT
    dice.shuffle(kinds)
    work = (NEW + SAMPLED) * (LONG * LONG_CALLS + SHORT * SHORT_CALLS) / len(kinds)
    found, clock = [], 0.0
    for number, long in enumerate(kinds):
        rounds, width = (LONG_CALLS // branches, branches) if long else (SHORT_CALLS, 1)
        found.append(Program(number, rounds, width, arrival=int(clock)))
        clock += dice.expovariate(load / work)
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
    start, ahead, active = engine.computed_tokens, list(arriving), list[Program]()
    while ahead or active:
        while ahead and (not active or engine.computed_tokens - start >= ahead[0].arrival):
            program = ahead.pop(0)
            program.started = time.perf_counter()
            ask(engine, program)
            active.append(program)
        engine.step()
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
    network: DecoderNetwork, schedule: str, branches: int, load: float
) -> Callable[[], float]:
    """Measures one round: programs completed per second of mean waiting (higher is better)."""
    engine = Engine(
        network, frozenset(), slots=SLOTS, context=CONTEXT, schedule=schedule_of(schedule)
    )
    seeds = itertools.count(1)

    def once() -> float:
        return 1 / statistics.fmean(lived(engine, programs(next(seeds), branches, load)))

    return once


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each kind of long program and each load."""
    network = workload.network()
    results = []
    kinds = ((8, "searching 8 at a time"), (1, "one after the other"))
    for (branches, name), load in itertools.product(kinds, LOADS):
        ours = completions(network, "attained", branches, load)
        theirs = completions(network, "fcfs", branches, load)
        measured = alternate(ours, theirs, options.rounds)
        results.append(
            Result(
                name=f"programs of 2 and of 32 calls, {name}, load {load:g}: "
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
