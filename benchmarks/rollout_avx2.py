"""Multi-turn rollout without AVX-512 and bf16: against transformers and llama.cpp, held to AVX2.

The same weights (SmolLM2-135M) and the same conversations (see workload.py). palaestra and
transformers compute in fp32, to which bf16 weights are widened exactly. llama.cpp's server,
compiled for AVX2 on first use (see rollout_llamacpp.py), reads them in bf16, bit for bit, and
quantised to Q8_0 (half the bytes, other weights):
    python benchmarks/rollout_avx2.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import avx2
import torch
import workload
from gguf_checkpoint import BF16, Q8_0, convert
from measuring import Result, run
from rollout import generate
from rollout_llamacpp import GOAL, peer

PEERS = ("transformers", "bf16", "Q8_0")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of alternation (3)")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for transformers, and one for each form of llama.cpp's weights."""
    avx2.hold()
    ours = workload.acting(workload.network(dtype=torch.float32))
    rows = []
    if "transformers" in options.peers:
        what, theirs = "AVX2, fp32, against transformers generate", generate(dtype=torch.float32)
        rows.append(workload.compared(what, ours, theirs, goal=6.0, rounds=options.rounds))
    for name, kind in (("bf16", BF16), ("Q8_0", Q8_0)):
        if name not in options.peers:
            continue
        with peer(native=False) as llamacpp:
            file = llamacpp.folder / f"smollm2-135m-{name}.gguf"
            theirs = workload.hosted(llamacpp, convert(workload.checkpoint(), file, kind))
            what = f"AVX2, fp32, against llama.cpp's parallel slots with {name} weights"
            rows.append(workload.compared(what, ours, theirs, goal=GOAL, rounds=options.rounds))
    return rows


if __name__ == "__main__":
    run(__doc__, measure, options)
