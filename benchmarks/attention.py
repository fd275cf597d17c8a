"""Causal attention of the learner along packed rows, against torch's fused kernel.

Both on the same tensors (forward and backward, bf16, a micro-batch of SmolLM2-135M of equally
long rows that share nothing, so that neither saves or pads anything); the ratio is that of
their speeds:
    python benchmarks/attention.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import torch.nn.functional as F
from measuring import Result, alternate, run
from torch import Tensor

from palaestra.learning.compute.shared_prefix_attention import RowAttention
from palaestra.models.local.attention import Scores

HEADS, KV_HEADS, HEAD_DIM, ROWS = 9, 3, 64, 16
ROUNDS = 15

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q [N, heads, d], k and v [N, kv_heads, d] of all rows, one after the other, to [N, heads, d]."""


def packed(length: int, device: torch.device) -> Attention:
    paths = [range(row * length, (row + 1) * length) for row in range(ROWS)]
    attend = RowAttention(paths, ROWS * length, device)
    return lambda q, k, v: attend(0, q, k, v, Scores(q.shape[-1] ** -0.5))


def fused(length: int) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.view(ROWS, length, -1, HEAD_DIM).transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(0, 1)

    return attend


def rate(attend: Attention, length: int, device: torch.device) -> float:
    """Passes forward and backward per second."""
    q, k, v = (
        torch.randn(ROWS * length, heads, HEAD_DIM, device=device)
        .to(torch.bfloat16)
        .requires_grad_()
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    started = _now(device)
    out = attend(q, k, v)
    out.backward(torch.ones_like(out))
    return 1 / (_now(device) - started)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def compare(length: int) -> Result:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ours, theirs = packed(length, device), fused(length)
    for attend in (ours, theirs):
        rate(attend, length, device)  # warm up
    measured = alternate(
        lambda: rate(ours, length, device), lambda: rate(theirs, length, device), ROUNDS
    )
    return Result(
        name=f"learner attention, {ROWS} rows of {length}, against torch's fused kernel",
        ratio=measured.ratio,
        goal=None,
        low=measured.low,
        high=measured.high,
        figures={"palaestra ms": 1e3 / measured.ours, "peer ms": 1e3 / measured.theirs},
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each length."""
    return [compare(length) for length in (64, 128, 256, 512)]


if __name__ == "__main__":
    run(__doc__, measure)
