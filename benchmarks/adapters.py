"""What it costs to serve several LoRA adapters at once from one base.

SmolLM2-135M in bf16 with four adapters of rank 16 in one batch, against one adapter for all of its
sequences, and one adapter against none: decoding alone (decode.py, 32 sequences), and the rollouts
of workload.py, in which most tokens are prompts and each adapter reads the shared one by itself:
    python benchmarks/adapters.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Sequence

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import decode
import torch
import workload
from measuring import Result, alternate, run

from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import OWN, Factors, add_adapter, linear_layers, sizes_of
from palaestra.models.local.network import DecoderNetwork

RANK, BATCH = 16, 32
NAMES = ("a", "b", "c", "d")
GOAL = 0.85  # of one adapter's tokens per second

Rounds = Callable[[], float]
"""Measures once; returns tokens per second."""


def adapted(names: Sequence[str]) -> DecoderNetwork:
    """The network with adapters of random factors."""
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
    return network


def rollouts(names: Sequence[str]) -> Rounds:
    """Rollouts whose sessions use the adapters in turn; warmed up."""
    return workload.rounds_of(workload.acting(adapted(names), names or (OWN,)))


def decoding(names: Sequence[str]) -> Rounds:
    """Decoding of a batch whose sequences use the adapters in turn; warmed up."""
    engine, seeds = Engine(adapted(names), frozenset(), slots=BATCH, context=512), itertools.count()

    def round_() -> float:
        return decode.decoded(engine, BATCH, next(seeds), adapters=names or (OWN,))

    round_()
    return round_


def measure(options: argparse.Namespace) -> list[Result]:
    """Four against one, then one against none, each for decoding and for rollouts."""
    rows = []
    for title, peer, ours, theirs in (
        ("four adapters in one batch", "one adapter", NAMES, NAMES[:1]),
        ("one adapter", "none", NAMES[:1], ()),
    ):
        for what, made in (("decode", decoding), ("rollout", rollouts)):
            measured = alternate(made(ours), made(theirs), options.rounds)
            rows.append(
                Result(
                    name=f"{title}: {what}, against {peer}",
                    ratio=measured.ratio,
                    goal=GOAL if peer == "one adapter" else None,
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
