"""The waiting time for a sandbox: from a pool, and without one.

A start is what passes until a Python program inside has answered its first line. From the pool a
sandbox is taken whose interpreter is waiting; without one, the sandbox is opened and the
interpreter started. Between two starts the pool gets the time to make another one. Also measured:
one `true` in a sandbox that is open. The goal is 20 ms at the median from the pool; the ratio is
the goal over the time, so 1 reaches it:
    python benchmarks/sandbox.py [--json] [--kind NAME …] [--starts N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from measuring import Result, run

from palaestra.sandbox.base import Program
from palaestra.sandbox.factory import KINDS, open_sandbox
from palaestra.sandbox.sandbox_pool import Pool, Warm

GOAL = 0.020  # seconds
READY = "ready"
COMMAND = [
    "python3",
    "-c",
    f"print('{READY}', flush=True)\nwhile True: print(eval(input()), flush=True)",
]


def answer(program: Program) -> None:
    program.send("6 * 7")
    assert program.receive(60.0) == "42"


def from_pool(pool: Pool) -> tuple[float, Warm]:
    started = time.perf_counter()
    warm = pool.take()
    assert warm.program is not None
    answer(warm.program)
    return time.perf_counter() - started, warm


def alone(kind: str) -> float:
    started = time.perf_counter()
    sandbox = open_sandbox(kind)
    program = sandbox.start(COMMAND)
    assert program.receive(60.0) == READY
    answer(program)
    took = time.perf_counter() - started
    sandbox.close()
    return took


def pooled(kind: str, starts: int) -> list[float]:
    found = []
    with Pool(lambda: open_sandbox(kind), 2, command=COMMAND, ready=READY) as pool:
        pool.take().close()  # warm up
        for _ in range(starts):
            pool.wait_until_ready()
            took, warm = from_pool(pool)
            found.append(took)
            warm.close()
    return found


def command(kind: str, starts: int) -> list[float]:
    sandbox = open_sandbox(kind)
    words = ["python3", "-c", ""] if kind == "wasm" else ["true"]
    found = [_timed(lambda: sandbox.run(words)) for _ in range(starts)]
    sandbox.close()
    return found


def _timed(deed: Callable[[], object]) -> float:
    started = time.perf_counter()
    deed()
    return time.perf_counter() - started


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kind", nargs="*", choices=KINDS, metavar="NAME", help="which (all that can run here)"
    )
    parser.add_argument("--starts", type=int, default=20)


def measure(chosen: argparse.Namespace) -> list[Result]:
    results = []
    here = [kind for kind, made in KINDS.items() if made.missing() is None]
    for kind in chosen.kind or here:
        print(f"measuring {kind}", file=sys.stderr)
        warm = pooled(kind, chosen.starts)
        cold = [alone(kind) for _ in range(max(3, chosen.starts // 4))]
        ran = command(kind, max(3, chosen.starts // 2))
        results.append(
            Result(
                name=f"sandbox, a start from the pool, {kind}, against {GOAL * 1e3:g} ms",
                ratio=GOAL / statistics.median(warm),
                goal=1.0,
                low=GOAL / max(warm),
                high=GOAL / min(warm),
                figures={
                    "milliseconds_from_the_pool": 1e3 * statistics.median(warm),
                    "milliseconds_without_a_pool": 1e3 * statistics.median(cold),
                    "milliseconds_of_one_command": 1e3 * statistics.median(ran),
                },
            )
        )
    return results


if __name__ == "__main__":
    run(__doc__, measure, options)
