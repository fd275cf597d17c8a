"""The learner's arithmetic against the machine's bf16 matrix rate, on packed rows.

One optimiser step of SmolLM2-135M on 8 tasks x 8 rollouts (see practice.py), from rows to
updated weights. Only what the mathematics needs counts: each distinct token once through the
blocks, forward and backward (2 + 4 FLOPs a weight), the head where a token is trained, and
attention to what a token sees. What is computed again or padded counts for nothing:
    python benchmarks/learner.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import practice
from limits import block_weights, head_weights, limits
from measuring import Result, alternate, run

from palaestra.learning.compute.packing import Trained
from palaestra.learning.losses.policy_loss import ppo
from palaestra.models.local.architecture import NetworkConfig

GOAL = 0.7


def distinct(rows: list[Trained]) -> int:
    """Tokens that are left when each shared prefix counts once."""
    return sum(contexts(rows).values())


def contexts(rows: list[Trained]) -> dict[int, int]:
    """Count distinct tokens by the number of tokens they attend to, themselves included."""
    seen = {tuple(row.tokens[: i + 1]) for row in rows for i in range(len(row.tokens))}
    found: dict[int, int] = {}
    for prefix in seen:
        found[len(prefix)] = found.get(len(prefix), 0) + 1
    return found


def flops(config: NetworkConfig, rows: list[Trained]) -> float:
    """Of one optimiser step on the rows; the optimiser's own are left out."""
    trained = sum(sum(row.mask) for row in rows)
    sizes = contexts(rows)
    attended = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    attention = attended * sum(length * count for length, count in sizes.items())
    forward = 2 * block_weights(config) * sum(sizes.values()) + 2 * head_weights(config) * trained
    return 3.0 * (forward + attention)


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    model = practice.policy()
    learner = practice.learner_of(model)
    found = practice.recorded(model, 0)
    rows = practice.batch(found, practice.drawn_returns(len(found), 0))
    work = flops(model.network.config, rows)
    learner.update(rows, ppo)  # creates gradients and moments of the master weights

    def ours() -> float:
        started = time.perf_counter()
        learner.update(rows, ppo)
        return work / (time.perf_counter() - started)

    measured = alternate(ours, lambda: limits().bf16_flops, options.rounds)
    seconds = work / measured.ours
    tokens, alone = distinct(rows), sum(len(row.tokens) for row in rows)
    return [
        Result(
            name="learner: arithmetic against the bf16 matrix rate, packed rows",
            ratio=measured.ratio,
            goal=GOAL,
            low=measured.low,
            high=measured.high,
            limit_fraction=measured.ratio,
            figures={
                "palaestra GFLOP/s": measured.ours / 1e9,
                "limit GFLOP/s": measured.theirs / 1e9,
                "step s": seconds,
                "trained tokens/s": sum(sum(row.mask) for row in rows) / seconds,
                "tokens/s, shared ones once": tokens / seconds,
                "share of tokens saved": 1 - tokens / alone,
                "tokens a pass": float(learner.budget.tokens),
            },
        )
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of alternation (5)")


if __name__ == "__main__":
    run(__doc__, measure, _options)
