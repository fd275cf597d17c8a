"""What it costs to serve several LoRA adapters at once from one base.

The rollouts of workload.py with SmolLM2-135M in bf16: their sessions reply by four adapters of
rank 16 in one batch, against one adapter for all of them, and one adapter against none:
    python benchmarks/adapters.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import workload
from measuring import Result, alternate, run

from palaestra.models.local.lora import OWN, Factors, add_adapter, linear_layers, sizes_of

RANK = 16
NAMES = ("a", "b", "c", "d")


def acting(*names: str) -> workload.Rollout:
    """The engine, with the adapters in turn; warmed up."""
    network = workload.network()
    for seed, name in enumerate(names):
        generator = torch.Generator().manual_seed(seed)
        factors = {}
        for place, layer in linear_layers(network).items():
            outputs, inputs = sizes_of(getattr(layer, "base_layer", layer))
            down = torch.randn(RANK, inputs, generator=generator) * 0.01
            up = torch.randn(outputs, RANK, generator=generator) * 0.01
            factors[place] = Factors(down, up, 2.0)
        add_adapter(network, name, factors)
    return workload.acting(network, names or (OWN,))


def measure(options: argparse.Namespace) -> list[Result]:
    """Four against one, then one against none."""
    rows = []
    for title, peer, ours, theirs, goal in (
        ("four adapters in one batch", "one adapter", NAMES, NAMES[:1], 0.8),
        ("one adapter", "none", NAMES[:1], (), None),
    ):
        measured = alternate(
            workload.rounds_of(acting(*ours)), workload.rounds_of(acting(*theirs)), options.rounds
        )
        rows.append(
            Result(
                name=f"{title}: rollout, against {peer}",
                ratio=measured.ratio,
                goal=goal,
                low=measured.low,
                high=measured.high,
                figures={
                    f"{title} tokens/s": measured.ours,
                    f"{peer} tokens/s": measured.theirs,
                },
            )
        )
    return rows


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
