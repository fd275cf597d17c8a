"""What it costs to measure a known answer at each turn of a rollout (IGPO).

The rollouts of workload.py with SmolLM2-135M in bf16. At each turn of each session the
log-probabilities of an answer as long as a reply (4 tokens), or four times as long, are measured in
a fork of the conversation, against the same rollouts without:
    python benchmarks/probes.py [--json]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import Result, alternate, run

GOAL = 1 / 1.15  # of the speed without: less than 15 % more time


def measure(options: argparse.Namespace) -> list[Result]:
    """Rollouts with answers against those without."""
    network, rows = workload.network(), []
    plain = workload.acting(network)
    for length, goal in ((workload.SAMPLED, GOAL), (4 * workload.SAMPLED, None)):
        probing = workload.acting(network, answer=range(200, 200 + length))
        measured = alternate(workload.rounds_of(probing), workload.rounds_of(plain), options.rounds)
        rows.append(
            Result(
                name=f"a known answer of {length} tokens measured at each turn: rollout, "
                "against none",
                ratio=measured.ratio,
                goal=goal,
                low=measured.low,
                high=measured.high,
                figures={
                    "with answers tokens/s": measured.ours,
                    "without tokens/s": measured.theirs,
                    "more time %": 100 * (1 / measured.ratio - 1),
                },
            )
        )
    return rows


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
