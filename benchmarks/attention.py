"""Causal attention of the learner: plain batched products against torch's fused kernel.

Alternates the two on the same tensors (forward and backward, bf16, rows of a
micro-batch of SmolLM2-135M), and prints the median ratio with its spread:
    python benchmarks/attention.py [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.learning.packing import causal_attention

HEADS, KV_HEADS, HEAD_DIM, ROWS = 9, 3, 64, 16
ROUNDS = 15


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def seconds(attention: Callable[[Tensor, Tensor, Tensor], Tensor], length: int) -> float:
    shapes = [(ROWS, length, heads, HEAD_DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    q, k, v = (torch.randn(s, dtype=torch.bfloat16, requires_grad=True) for s in shapes)
    started = time.perf_counter()
    out = attention(q, k, v)
    out.backward(torch.ones_like(out))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for length in (64, 128, 256, 512):
        for attention in (causal_attention, fused):
            seconds(attention, length)  # warm up
        pairs = [(seconds(causal_attention, length), seconds(fused, length)) for _ in range(ROUNDS)]
        ratios = sorted(theirs / ours for ours, theirs in pairs)
        rows.append(
            {
                "name": f"learner attention, rows of {length}",
                "ratio": statistics.median(ratios),
                "low": ratios[ROUNDS // 10],
                "high": ratios[-1 - ROUNDS // 10],
                "ours_ms": 1e3 * statistics.median(ours for ours, _ in pairs),
                "fused_ms": 1e3 * statistics.median(theirs for _, theirs in pairs),
            }
        )
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['name']}: {row['ours_ms']:.1f} ms, fused {row['fused_ms']:.1f} ms, "
            f"{row['ratio']:.2f} times as fast ({row['low']:.2f} to {row['high']:.2f})"
        )


if __name__ == "__main__":
    main()
