"""Decoding alone: tokens per second of the engine against what this machine can do at most.

SmolLM2-135M in bf16, batches of 32 and 64 sequences (on a graphics processor 64 and 256) with
about 256 tokens of context each. The
limit is the slower of the step's bytes (weights, keys and values) and its FLOPs at the rates
that limits.py measures in the same run; the ratio is the share of it that is reached:
    python benchmarks/decode.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import time
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from limits import Limits, decode_limit, limits
from measuring import Result, run

from palaestra.core.model import Sampling
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork

CONTEXT, STEPS = 256, 24
SPARE = 96  # tokens of each reply beyond the timed ones: prompts are read over several steps
GOAL = 0.60


def decoded(
    engine: Engine,
    batch: int,
    seed: int,
    context: int = CONTEXT,
    adapters: Sequence[str] = (OWN,),
) -> float:
    """Tokens per second while every sequence of the batch decodes, to about `context` tokens.

    The sequences use the adapters in turn; a network without adapters has none.
    """
    dice = random.Random(seed)
    engine.clear()
    requests = []
    for number in range(batch):
        prompt = [dice.randrange(100, 49_000) for _ in range(context - STEPS)]
        adapter = adapters[number % len(adapters)]
        sampling = Sampling(1.0, STEPS + SPARE)
        requests.append(engine.submit(prompt, sampling, number, adapter=adapter))
    while any(not request.completion for request in requests):
        engine.step()
    before = sum(len(request.completion) for request in requests)
    started = time.perf_counter()
    for _ in range(STEPS):
        engine.step()
    seconds = time.perf_counter() - started
    sampled = sum(len(request.completion) for request in requests) - before
    assert sampled >= batch * STEPS, "a sequence finished before the measurement did"
    for request in requests:
        engine.cancel(request)
    return sampled / seconds


def decode(network: DecoderNetwork, batch: int, machine: Limits, rounds: int) -> Result:
    engine = Engine(network, frozenset(), slots=batch, context=512)
    seeds = itertools.count()
    decoded(engine, batch, next(seeds))  # warm up
    limit = decode_limit(network.config, batch, CONTEXT, machine)
    rates = [decoded(engine, batch, next(seeds)) for _ in range(rounds)]
    median = statistics.median(rates)
    return Result(
        name=f"decode, batch {batch}, context {CONTEXT}, against the limit",
        ratio=median / limit,
        goal=GOAL,
        low=min(rates) / limit,
        high=max(rates) / limit,
        limit_fraction=median / limit,
        figures={
            "palaestra tokens/s": median,
            "limit tokens/s": limit,
            "bf16 GFLOP/s": machine.bf16_flops / 1e9,
            "memory GB/s": machine.bytes_per_second / 1e9,
        },
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each batch size."""
    machine = limits()
    network = workload.network()
    batches = (64, 256) if network.device.type == "cuda" else (32, 64)
    return [decode(network, batch, machine, options.rounds) for batch in batches]


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
