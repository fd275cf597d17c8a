"""What it costs to run a model by transformers' own code (`model.backend = "transformers"`).

SmolLM2-135M in bf16, which the resident network runs too: the same engine and the same learner
around both networks. Rollouts are those of workload.py, also against transformers' `generate`,
which the same code of the model would act with otherwise; learning is that of practice.py.
With `--way own`, by the model's own cache: SmolLM2 likewise, and a model like Qwen 3.5 against
`generate`:
    python benchmarks/backend.py [--way own] [--json]
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
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import Backend, way_of
from palaestra.models.local.own_cache_network import OwnCacheNetwork
from palaestra.models.local.resident import ResidentModel

SHARED: Backend = "transformers"
FEW = 8  # sessions


def learning(network: DecoderNetwork, rows: list[Trained]) -> Callable[[], float]:
    """Optimiser steps a second on the rows, warmed up."""
    resident = practice.policy()
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
    own, rounds = options.way == "own", options.rounds
    network = OwnCacheNetwork(workload.transformers_model()) if own else workload.network(SHARED)
    found = []
    if options.what in ("rollout", "all"):
        ours, theirs = workload.acting(network), workload.resident()
        found.append(_row(way_of(network), "the resident network", ours, theirs, rounds))
    if options.what in ("generate", "all"):
        found.append(against_generate(network, rounds))
    if options.what in ("learning", "all"):
        found.append(learners(network, rounds))
    return found


def against_generate(network: DecoderNetwork, rounds: int) -> Result:
    """Rollouts against transformers' `generate`; eight sessions of the model like Qwen 3.5."""
    name, peer = way_of(network), "transformers generate"
    if not network.own_cache:
        return _row(name, peer, workload.acting(network), rollout.generate(), rounds)
    gated = OwnCacheNetwork(workload.gated_model())
    ours = workload.acting(gated, sessions=FEW)
    theirs = rollout.generate(gated.model, sessions=FEW)
    return _row(f"{name}, like Qwen 3.5", peer, ours, theirs, rounds)


def learners(network: DecoderNetwork, rounds: int) -> Result:
    """Steps of a learner against the resident network."""
    policy = practice.policy()
    recorded = practice.recorded(policy, 0)
    rows = practice.batch(recorded, practice.drawn_returns(len(recorded), 0))
    if network.own_cache:
        rows = rows[: len(rows) // 4]  # two tasks of eight, all rollouts of each
    theirs = learning(workload.network("resident"), rows)
    measured = alternate(learning(network, rows), theirs, rounds)
    return Result(
        name=f"{way_of(network)}: learner's step, against the resident network",
        ratio=measured.ratio,
        goal=None,
        low=measured.low,
        high=measured.high,
        figures={"own code s": 1 / measured.ours, "resident s": 1 / measured.theirs},
    )


def _row(
    way: str, peer: str, ours: workload.Rollout, theirs: workload.Rollout, rounds: int
) -> Result:
    measured = alternate(workload.rounds_of(ours), workload.rounds_of(theirs), rounds)
    return Result(
        name=f"{way}: rollout, against {peer}",
        ratio=measured.ratio,
        goal=None,
        low=measured.low,
        high=measured.high,
        figures={"own code tokens/s": measured.ours, f"{peer} tokens/s": measured.theirs},
    )


def options(parser: argparse.ArgumentParser) -> None:
    workload.options(parser)
    parser.add_argument("--way", choices=("shared", "own"), default="shared", help="whose cache")
    parser.add_argument("--what", choices=("rollout", "generate", "learning", "all"), default="all")


if __name__ == "__main__":
    run(__doc__, measure, options)
