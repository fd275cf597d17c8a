"""Two learner ranks of one thread each against one process, on the same update.

One optimiser step of SmolLM2-135M on 8 tasks x 8 rollouts (see practice.py). On one machine ranks
gain nothing that threads would not: the comparison with two threads shows what dealing out, sending
and summing cost, the one with a single thread what two ranks gain where each has its own machine,
as far as one machine with a loopback network can show it:
    python benchmarks/ranks.py [--json]
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "2")

import practice
import torch
from measuring import Result, alternate, run

from palaestra.learning.compute.packing import Trained
from palaestra.learning.loop.following import serve
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import ppo
from palaestra.learning.parallel import join

THREADS = 2


def made(description: object) -> Learner:
    """The learner of a rank; all begin with the same checkpoint."""
    return practice.learner_of(practice.policy())


def follow(address: str) -> None:
    """Rank 1."""
    torch.set_num_threads(1)
    serve(join(1, 2, address), made)


def rate(learner: Learner, rows: list[Trained], threads: int) -> Callable[[], float]:
    """Trained tokens a second of one update."""
    trained = sum(sum(row.mask) for row in rows)

    def measured() -> float:
        torch.set_num_threads(threads)
        started = time.perf_counter()
        learner.update(rows, ppo)
        return trained / (time.perf_counter() - started)

    measured()  # creates gradients and moments
    return measured


def measure(options: argparse.Namespace) -> list[Result]:
    """Two rows."""
    if options.follow is not None:
        follow(options.follow)
        return []
    alone, leading = made(None), made(None)
    found = practice.recorded(alone.model, 0)
    rows = practice.batch(found, practice.drawn_returns(len(found), 0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    other = subprocess.Popen(
        [sys.executable, __file__, "--follow", address], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    ranks = join(0, 2, address)
    leading.lead(Leader(ranks, None))
    ours = rate(leading, rows, 1)
    results = []
    for threads in (THREADS, 1):
        measured = alternate(ours, rate(alone, rows, threads), options.rounds)
        results.append(
            Result(
                name=f"learner: 2 ranks of 1 thread against 1 process of {threads}",
                ratio=measured.ratio,
                goal=None,
                low=measured.low,
                high=measured.high,
                figures={
                    "ranks' trained tokens/s": measured.ours,
                    "one process's trained tokens/s": measured.theirs,
                },
            )
        )
    ranks.end(0)
    other.wait()
    return results


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of alternation (5)")
    parser.add_argument("--follow", metavar="ADDRESS", help=argparse.SUPPRESS)


if __name__ == "__main__":
    run(__doc__, measure, _options)
