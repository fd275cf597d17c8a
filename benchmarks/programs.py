"""Program-aware scheduling: attained service against first come, first served.

Mean completion of short and long programs on the resident engine, with fewer slots than calls.

Short programs make 2 calls, one after the other. Long ones are, in three mixes: a search (4 rounds
of 8 branches that share their past; one program in four), one long episode (32 calls one after the
other; one in four), or a map over 64 pieces, twice (one in ten). Programs arrive at random, at 1.25
or twice the rate that the slots can serve: each mix and load is a row. Arrivals are told by
the number of the engine's steps, so all schedules get the same ones whatever else the machine
does. The ratio is the mean time from arrival to completion, first come over attained, in
alternating rounds.

What a schedule can gain depends on the mix: where long programs make one call after the other,
first come, first served shares the slots out fairly already. So the gain of one that knows how
much each program still wants (shortest remaining work first), which none can know, is measured
after it on the same programs, and the limit's share is attained service's gain over that one:
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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import Result, alternate, run

from palaestra.core.model import Sampling
from palaestra.models.local.engine import Engine
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.request import Request
from palaestra.models.local.schedule import AttainedService, FirstComeFirstServed, Schedule

PROGRAMS = 60
LOADS = 1.25, 2.0  # calls that arrive per call that the slots can serve
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


class ShortestRemaining:
    """Shortest remaining work first, with knowledge of it: an unattainable schedule."""

    def __init__(self, wanted: dict[Hashable, int]) -> None:
        """Begin with nothing done of what each program wants, in tokens."""
        self._left = dict(wanted)

    def level(self, request: Request, clock: int) -> int:
        return max(0, self._left[request.program]) // (NEW + SAMPLED)

    def order(self, request: Request, clock: int) -> tuple[int, int]:
        return self.level(request, clock), int(str(request.program))

    def served(self, request: Request, tokens: int) -> None:
        self._left[request.program] -= tokens


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
    network: DecoderNetwork,
    mix: Mix,
    load: float,
    schedule: Callable[[Sequence[Program]], Schedule],
) -> Callable[[], float]:
    """Measures one round: one over the mean seconds to completion (higher is better)."""
    seeds = itertools.count(1)

    def once() -> float:
        arriving = programs(next(seeds), mix, load)
        engine = Engine(
            network, frozenset(), slots=SLOTS, context=CONTEXT, schedule=schedule(arriving)
        )
        return 1 / statistics.fmean(lived(engine, arriving))

    return once


def knowing(arriving: Sequence[Program]) -> ShortestRemaining:
    """Told what each program will ask for."""
    calls = {program.number: program.rounds * program.branches for program in arriving}
    return ShortestRemaining({number: n * (NEW + SAMPLED) for number, n in calls.items()})


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each mix and each load."""
    network = workload.network()
    results = []
    for mix, load in itertools.product(MIXES, LOADS):
        ours = completions(network, mix, load, lambda _: AttainedService())
        theirs = completions(network, mix, load, lambda _: FirstComeFirstServed())
        best = completions(network, mix, load, knowing)
        measured = alternate(ours, theirs, options.rounds)
        most = statistics.median(best() for _ in range(options.rounds))  # of the same programs
        results.append(
            Result(
                name=f"programs of 2 calls and {mix.name}, load {load:g}: "
                "attained service against first come",
                ratio=measured.ratio,
                goal=GOAL,
                low=measured.low,
                high=measured.high,
                limit_fraction=measured.ours / most,
                figures={
                    "attained mean s": 1 / measured.ours,
                    "first come mean s": 1 / measured.theirs,
                    "shortest remaining mean s": 1 / most,
                },
            )
        )
    return results


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
