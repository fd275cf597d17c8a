"""What this machine can do: matrix products (fp32, bf16) and memory bandwidth, all threads.

The fastest of several repetitions counts, and of several shapes the fastest one: a limit is
what the machine reaches at its best. Shapes are those of SmolLM2-135M (decoding 64 tokens,
and a batch of 2,048) and one large square. Other benchmarks ask `limits()` and compare
themselves with the time that their own bytes and FLOPs would take at these rates:
    python benchmarks/limits.py [--json]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import torch.nn.functional as F
from measuring import Result, run
from torch import Tensor

from palaestra.models.local.architecture import NetworkConfig

SMOLLM2 = NetworkConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
)
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of one machine."""

    fp32_flops: float  # FLOP/s, a product of [m, k] and [k, n] counting 2 m k n
    bf16_flops: float
    bytes_per_second: float  # read, or read and written, whichever is faster
    rates: dict[str, float] = field(default_factory=dict)  # each measurement, unit in its name


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; smaller figures are for trying the program out."""

    seconds: float = 0.15  # per measurement, at least
    square: int = 4096  # rows and columns of the large product
    rows: tuple[int, ...] = (64, 2048)  # of the model's products
    mebibytes: int = 512  # of the buffer; many times the caches


def limits(device: torch.device | None = None, size: Size = Size()) -> Limits:
    """Measure this machine.

    Args:
        device: what to measure; the graphics processor if there is one, else the processor.
        size: how much.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rates: dict[str, float] = {}
    best = {torch.float32: 0.0, torch.bfloat16: 0.0}
    for dtype in best:
        for rows, inner, outer in _shapes(size):
            rate = _product(rows, inner, outer, dtype, device, size.seconds)
            name = "fp32" if dtype is torch.float32 else "bf16"
            rates[f"{name} {rows}x{inner}x{outer} GFLOP/s"] = rate / 1e9
            best[dtype] = max(best[dtype], rate)
    streams = _streams(size.mebibytes * 2**20, device, size.seconds)
    rates |= {f"{name} GB/s": rate / 1e9 for name, rate in streams.items()}
    return Limits(best[torch.float32], best[torch.bfloat16], max(streams.values()), rates)


def decode_limit(config: NetworkConfig, batch: int, context: int, limits: Limits) -> float:
    """Tokens per second that decoding cannot exceed: the slower of its bytes and its FLOPs.

    Args:
        config: sizes of the network; weights and cache in bf16.
        batch: sequences that get one token each in a step.
        context: tokens that each of them attends to.
        limits: of the machine.
    """
    return batch / step_seconds(config, batch, batch, batch, context, limits)


def step_seconds(
    config: NetworkConfig, tokens: int, sampled: int, sequences: int, context: float, limits: Limits
) -> float:
    """The least time of one step of an engine in bf16.

    Args:
        config: sizes of the network.
        tokens: run through the blocks.
        sampled: of them, those whose logits are needed.
        sequences: whose keys and values are read.
        context: tokens that each token attends to.
        limits: of the machine.
    """
    attended = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * context
    flops = tokens * (2 * block_weights(config) + attended) + sampled * 2 * head_weights(config)
    read = 2 * (block_weights(config) + head_weights(config))
    read += int(sequences * context * cache_bytes(config))
    return max(flops / limits.bf16_flops, read / limits.bytes_per_second)


def block_weights(config: NetworkConfig) -> int:
    """Weights of all blocks' matrices; each token is multiplied with all of them."""
    width, d = config.hidden_size, config.head_dim
    attention = width * d * (2 * config.num_attention_heads + 2 * config.num_key_value_heads)
    return config.num_hidden_layers * (attention + 3 * width * config.intermediate_size)


def head_weights(config: NetworkConfig) -> int:
    """Weights of the output head; only tokens that are sampled or trained need it."""
    return config.vocab_size * config.hidden_size


def cache_bytes(config: NetworkConfig) -> int:
    """Keys and values of one token in bf16, over all layers."""
    return 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim


# ── details ──────────────────────────────────────────────────────────────────


def _shapes(size: Size) -> list[tuple[int, int, int]]:
    """[rows, inner] times [inner, outer] of each product of the model, and the square."""
    c = SMOLLM2
    fused = (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim
    products = [
        (c.hidden_size, fused),
        (c.hidden_size, c.hidden_size),
        (c.hidden_size, 2 * c.intermediate_size),
        (c.intermediate_size, c.hidden_size),
    ]
    shapes = [(rows, inner, outer) for rows in size.rows for inner, outer in products]
    shapes.append((min(size.rows), c.hidden_size, c.vocab_size))
    return [*shapes, (size.square, size.square, size.square)]


def _product(
    rows: int, inner: int, outer: int, dtype: torch.dtype, device: torch.device, seconds: float
) -> float:
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    with torch.inference_mode():
        fastest = _fastest(lambda: F.linear(x, weight), device, seconds)
    return 2.0 * rows * inner * outer / fastest


def _streams(size: int, device: torch.device, seconds: float) -> dict[str, float]:
    """Bytes per second of reading a large buffer with two methods, and of copying it."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    columns = 4096
    matrix = source[: source.numel() // columns * columns].view(-1, columns)
    vector = torch.ones(columns, device=device)
    with torch.inference_mode():
        added = _fastest(lambda: source.sum(), device, seconds)
        multiplied = _fastest(lambda: matrix @ vector, device, seconds)
        copied = _fastest(lambda: target.copy_(source), device, seconds)
    return {
        "read (sum)": size / added,
        "read (matrix times vector)": 4 * matrix.numel() / multiplied,
        "read and written (copy)": 2 * size / copied,
    }


def _fastest(work: Callable[[], Tensor], device: torch.device, seconds: float) -> float:
    """Seconds of the fastest of at least three repetitions, after one that does not count."""
    work()
    fastest, spent, count = math.inf, 0.0, 0
    while spent < seconds or count < 3:
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        took = time.perf_counter() - started
        fastest, spent, count = min(fastest, took), spent + took, count + 1
    return fastest


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _options(parser: argparse.ArgumentParser) -> None:
    usual = Size()
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="per measurement")
    parser.add_argument("--square", type=int, default=usual.square, help="side of the square")
    parser.add_argument("--rows", type=int, nargs="+", default=usual.rows, help="of the products")
    parser.add_argument("--mebibytes", type=int, default=usual.mebibytes, help="of the buffer")


def measure(options: argparse.Namespace) -> list[Result]:
    """The rates of this machine; the ratio is that of bf16 products to fp32 ones."""
    size = Size(options.seconds, options.square, tuple(options.rows), options.mebibytes)
    rounds = [limits(size=size) for _ in range(ROUNDS)]
    ratios = [each.bf16_flops / each.fp32_flops for each in rounds]
    best = {name: max(each.rates[name] for each in rounds) for name in rounds[0].rates}
    fp32 = max(each.fp32_flops for each in rounds)
    bf16 = max(each.bf16_flops for each in rounds)
    return [
        Result(
            name="limits: matrix products in bf16 against fp32",
            ratio=bf16 / fp32,
            goal=None,
            low=min(ratios),
            high=max(ratios),
            figures={
                "fp32 GFLOP/s": fp32 / 1e9,
                "bf16 GFLOP/s": bf16 / 1e9,
                "memory GB/s": max(each.bytes_per_second for each in rounds) / 1e9,
                **best,
            },
        )
    ]


if __name__ == "__main__":
    run(__doc__, measure, _options)
