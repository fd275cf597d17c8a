"""What it costs to run a model by transformers' own code (`model.backend = "transformers"`).

SmolLM2-135M in bf16, which the resident network runs too: the same engine and the same learner
around both networks. Rollouts are those of workload.py, also against transformers' `generate`,
which the same code of the model would act with otherwise; learning is that of practice.py:
    python benchmarks/backend.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import practice
import rollout
import workload
from measuring import Result, alternate, run

from palaestra.learning.compute.packing import Trained
from palaestra.learning.losses.policy_loss import ppo
from palaestra.models.local.networks import Backend
from palaestra.models.local.resident import ResidentModel


def learning(backend: Backend, rows: list[Trained]) -> Callable[[], float]:
    """Optimiser steps a second on the rows, warmed up."""
    resident = practice.policy()
    network = workload.network(backend)
    model = ResidentModel("policy", network, resident.renderer, slots=1, context=1024)
    learner = practice.learner_of(model)

    def rate() -> float:
        started = time.perf_counter()
        learner.update(rows, ppo)
        return 1 / (time.perf_counter() - started)

    rate()
    return rate


def measure(options: argparse.Namespace) -> list[Result]:
    """Rollouts against both, then learning."""
    acting = workload.resident("transformers")
    found = [
        _row("rollout", "the resident network", acting, workload.resident(), options.rounds),
        _row("rollout", "transformers generate", acting, rollout.generate(), options.rounds),
    ]
    policy = practice.policy()
    recorded = practice.recorded(policy, 0)
    rows = practice.batch(recorded, practice.drawn_returns(len(recorded), 0))
    measured = alternate(learning("transformers", rows), learning("resident", rows), options.rounds)
    return [
        *found,
        Result(
            name="transformers' own code: learner's step, against the resident network",
            ratio=measured.ratio,
            goal=None,
            low=measured.low,
            high=measured.high,
            figures={"own code s": 1 / measured.ours, "resident s": 1 / measured.theirs},
        ),
    ]


def _row(
    what: str, peer: str, ours: workload.Rollout, theirs: workload.Rollout, rounds: int
) -> Result:
    measured = alternate(workload.rounds_of(ours), workload.rounds_of(theirs), rounds)
    return Result(
        name=f"transformers' own code: {what}, against {peer}",
        ratio=measured.ratio,
        goal=None,
        low=measured.low,
        high=measured.high,
        figures={"own code tokens/s": measured.ours, f"{peer} tokens/s": measured.theirs},
    )


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
