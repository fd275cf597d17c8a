"""Larger models and longer contexts: what acting and learning reach and take.

A network of a published shape with weights at random, in bf16: all sequences of a batch read their
context, decode, and are trained on for one step, with LoRA or all weights:
    python benchmarks/sizes.py --model 1b --context 2048 --batch 16 [--weights full] [--json]

The ratio is the learner's share of the machine's bf16 rate, a decoding step's share of its limit.
Models: 135m (SmolLM2), 0.5b and 1.5b (Qwen 2.5), 1b and 8b (Llama 3).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import workload
from learner import flops
from limits import decode_limit, limits
from measuring import Result, run

from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import adapters, everything
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.lora import add_lora
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.resident import ResidentModel
from palaestra.models.registry import renderer_of
from palaestra.runtime.machine import peak_memory_bytes

LONGEST = 131_072
SHAPES = {  # vocabulary, width, inner width, layers, heads, key/value heads
    "135m": (49_152, 576, 1_536, 30, 9, 3),
    "0.5b": (151_936, 896, 4_864, 24, 14, 2),
    "1b": (128_256, 2_048, 8_192, 16, 32, 8),
    "1.5b": (151_936, 1_536, 8_960, 28, 12, 2),
    "8b": (128_256, 4_096, 14_336, 32, 32, 8),
}
RANK, DECODED, TRAINED = 16, 64, 128
MEMORY = 2**30  # bytes of cache at least


def options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--model", choices=SHAPES, default="135m")
    parser.add_argument("--context", type=int, default=2048, help="tokens of each sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--weights", choices=("lora", "full"), default="lora")
    parser.add_argument("--rounds", type=int, default=3)


def random_network(shape: str) -> DecoderNetwork:
    """A network of that shape, made where it runs."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return DecoderNetwork(NetworkConfig(*SHAPES[shape], max_position_embeddings=LONGEST))
    finally:
        torch.set_default_dtype(usual)


def decoded(model: ResidentModel, given: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Tokens per second of reading the contexts, then of decoding."""
    dice, engine = random.Random(seed), model.engine
    engine.clear()
    length = given.context - DECODED
    prompts = [[dice.randrange(100, 49_000) for _ in range(length)] for _ in range(given.batch)]
    started = time.perf_counter()
    asked = [engine.submit(p, Sampling(1.0, DECODED), n) for n, p in enumerate(prompts)]
    while any(not request.completion for request in asked):
        engine.step()
    read = time.perf_counter()
    before = sum(len(request.completion) for request in asked)
    while engine.pending:
        engine.step()
    sampled = sum(len(request.completion) for request in asked) - before
    return length * given.batch / (read - started), sampled / (time.perf_counter() - read)


def trained(given: argparse.Namespace, seed: int) -> list[Trained]:
    """Rows whose last tokens are trained on."""
    dice = random.Random(seed)
    count = min(TRAINED, given.context // 2)
    mask = [False] * (given.context - count) + [True] * count
    rows = []
    for _ in range(given.batch):
        tokens = [dice.randrange(100, 49_000) for _ in range(given.context)]
        share = [1 / (count * given.batch)] * given.context
        rows.append(
            Trained(tokens, mask, advantage=[dice.gauss(0, 1)] * given.context, weight=share)
        )
    return rows


def seconds_of_update(learner: Learner, rows: list[Trained]) -> float:
    """One optimiser step."""
    started = time.perf_counter()
    learner.update(rows, pg)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def measure(given: argparse.Namespace) -> list[Result]:
    """Two rows: decoding and learning."""
    machine, network = limits(), random_network(given.model)
    config = network.config
    if given.weights == "lora":
        add_lora(network, RANK, seed=0)
    per_token = 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    model = ResidentModel(
        given.model,
        network,
        renderer_of(workload.checkpoint()),
        slots=given.batch,
        context=given.context,
        memory=max(MEMORY, 2 * per_token * given.batch * given.context),
    )
    decoded(model, given, 0)  # warm up
    rates = [decoded(model, given, seed) for seed in range(1, given.rounds + 1)]
    limit = decode_limit(config, given.batch, given.context, machine)
    shares = [rate / limit for _, rate in rates]
    size = f"{given.model}, context {given.context}, batch {given.batch}"
    decoding = Result(
        f"decode {size}, against the limit",
        statistics.median(shares),
        None,
        min(shares),
        max(shares),
        limit_fraction=statistics.median(shares),
        figures={
            "reading tokens/s": statistics.median(read for read, _ in rates),
            "decoding tokens/s": statistics.median(rate for _, rate in rates),
        }
        | memory(),
    )
    chosen = adapters(network) if given.weights == "lora" else everything(network)
    learner = Learner(model, chosen, Optimisation(learning_rate=1e-6))
    rows = trained(given, 0)
    seconds_of_update(learner, rows)  # creates gradients and moments
    times = [seconds_of_update(learner, rows) for _ in range(given.rounds)]
    # The gradients of frozen weights are not computed.
    work = flops(config, rows) * (2 / 3 if given.weights == "lora" else 1)
    parts = [work / seconds / machine.bf16_flops for seconds in times]
    learning = Result(
        f"learner {size}, {given.weights}, against the bf16 rate",
        statistics.median(parts),
        None,
        min(parts),
        max(parts),
        limit_fraction=statistics.median(parts),
        figures={
            "tokens/s": given.batch * given.context / statistics.median(times),
            "s a step": statistics.median(times),
        }
        | memory(),
    )
    return [decoding, learning]


def memory() -> dict[str, float]:
    """Peak memory so far."""
    found = {"peak GB": peak_memory_bytes() / 1e9}
    if torch.cuda.is_available():
        found["peak GB of the device"] = torch.cuda.max_memory_allocated() / 1e9
    return found


if __name__ == "__main__":
    run(__doc__, measure, options)
