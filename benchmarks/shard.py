"""Memory of learner ranks that divide the optimiser's state, against ranks of which each has all.

Two ranks of one thread each take three optimiser steps of a transformer of 82 million weights, and
rank 0 then reads the whole state, as for a checkpoint. Each rank's figure is its peak of resident
memory after loading the network: master weights, gradients, moments, and what passes and transfers
take for a while. Each way of learning runs in processes of its own; speeds are those of the last
two steps:
    python benchmarks/shard.py [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import Result, run
from ranks import LENGTH, batch

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.shards import Sharding
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.loop.following import serve
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import ppo
from palaestra.learning.parallel import Ranks, join
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer

LAYERS, WIDTH, HEADS = 6, 1024, 16
ROWS = 16
PASS = 256  # distinct tokens of a pass
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

_loaded = 0  # bytes of this process with the network


def made(description: object, ranks: Ranks, shard: bool, dtype: str) -> Learner:
    """The learner of a rank; all begin with the same weights."""
    global _loaded
    tokenizer = learn_vocabulary(["a world"])
    size = tokenizer.get_vocab_size()
    network = tiny_network(size, layers=LAYERS, width=WIDTH, heads=HEADS, context=LENGTH, seed=0)
    network.to(TYPES[dtype])
    model = ResidentModel("policy", network, ChatMLRenderer(tokenizer), context=LENGTH)
    _loaded = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    sharding = Sharding(ranks) if shard else None
    learner = Learner(model, everything(network), Optimisation(1e-6), sharding=sharding)
    learner.budget.tokens = PASS
    return learner


def rank(number: int, address: str, shard: bool, dtype: str) -> None:
    """Learn as one rank; print its figures."""
    torch.set_num_threads(1)
    ranks = join(number, 2, address)
    make = partial(made, ranks=ranks, shard=shard, dtype=dtype)
    seconds = 0.0
    if number:
        serve(ranks, make)
    else:
        learner, rows = make(None), batch()[:ROWS]
        learner.lead(Leader(ranks, None))
        for step in range(3):
            if step == 1:
                started = time.perf_counter()
            learner.update(rows, ppo)
        seconds = (time.perf_counter() - started) / 2
        for part in (state := learner.state()):
            assert state[part]
        ranks.end(0)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"bytes": peak - _loaded, "seconds": seconds}))


def both(shard: bool, dtype: str) -> list[dict[str, float]]:
    """The figures of two ranks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    options = ["--address", address, "--dtype", dtype, *(["--divided"] if shard else [])]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(number), *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]


def measure(options: argparse.Namespace) -> list[Result]:
    """One row for each rank, and one for the speed."""
    if options.rank is not None:
        rank(options.rank, options.address, options.divided, options.dtype)
        return []
    found = [[both(shard, options.dtype) for shard in (False, True)] for _ in range(options.rounds)]
    results = []
    for figure, number in (("bytes", 0), ("bytes", 1), ("seconds", 0)):
        pairs = [(whole[number][figure], divided[number][figure]) for whole, divided in found]
        ratios = [whole / divided for whole, divided in pairs]
        what = f"memory of rank {number}" if figure == "bytes" else "seconds of a step"
        results.append(
            Result(
                name=f"learner: {what}, whole against divided, 2 ranks, {options.dtype}",
                ratio=statistics.median(ratios),
                goal=None,
                low=min(ratios),
                high=max(ratios),
                figures={
                    f"{figure}, whole": statistics.median(whole for whole, _ in pairs),
                    f"{figure}, divided": statistics.median(divided for _, divided in pairs),
                },
            )
        )
    return results


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=1, help="of each way (1)")
    parser.add_argument("--dtype", choices=tuple(TYPES), default="bf16", help="of the weights")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--divided", action="store_true", help=argparse.SUPPRESS)


if __name__ == "__main__":
    run(__doc__, measure, _options)
