"""Two learner ranks of one thread each against one process, on the same update.

One optimiser step of a transformer of 13 million weights in fp32 on 8 tasks x 8 rollouts, which
share their first half. What a step computes and what ranks send both grow with the weights, so
their ratio is that of a larger model on as many tokens. On one machine ranks gain nothing that
threads would not: the comparison with two threads shows what dealing out, sending and summing cost,
the one with a single thread what two ranks gain where each has its own processor:
    python benchmarks/ranks.py [--json]
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch
from measuring import Result, alternate, run

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.loop.following import serve
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import ppo
from palaestra.learning.parallel import join
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer

THREADS = 2
TASKS, GROUP, LENGTH, SHARED, VOCABULARY = 8, 8, 128, 64, 256
PASS = 1024  # distinct tokens of a pass


def made(description: object) -> Learner:
    """The learner of a rank; all begin with the same weights."""
    tokenizer = learn_vocabulary(["a world"])
    size = tokenizer.get_vocab_size()
    network = tiny_network(size, layers=4, width=512, heads=8, context=LENGTH, seed=0)
    model = ResidentModel("policy", network, ChatMLRenderer(tokenizer), context=LENGTH)
    learner = Learner(model, everything(network), Optimisation(1e-6))
    learner.budget.tokens = PASS
    return learner


def batch() -> list[Trained]:
    """Rows of random tokens; half of what they do not share is trained."""
    rng = random.Random(0)
    rows = []
    for _ in range(TASKS):
        prompt = rng.choices(range(VOCABULARY), k=SHARED)
        for _ in range(GROUP):
            own = rng.choices(range(VOCABULARY), k=LENGTH - SHARED)
            mask = [False] * SHARED + [at // 4 % 2 == 0 for at in range(LENGTH - SHARED)]
            advantage = [rng.gauss(0, 1)] * LENGTH
            weight = [1 / (TASKS * GROUP)] * LENGTH
            old = [-math.log(VOCABULARY)] * LENGTH
            rows.append(Trained([*prompt, *own], mask, old, advantage, weight))
    return rows


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
    rows = batch()
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
                    "trained tokens": float(sum(sum(row.mask) for row in rows)),
                    "weights": float(sum(p.numel() for p in alone.parameters.values())),
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
