"""A learner's step against TRL's GRPOTrainer, on the same episodes.

8 tasks x 8 rollouts of SmolLM2-135M (see practice.py). TRL gets the recorded episodes from
its rollout function; its step is timed from there to the updated weights, ours from the same
rows. Both report the norm of their first gradient: it shows that they do the same work:
    python benchmarks/learner_trl.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import practice
from measuring import Peer, Result, alternate, run
from provenance import ROOT

from palaestra.learning.data.rows import Row
from palaestra.learning.losses.policy_loss import ppo

GOAL = 3.0


def peer() -> Peer:
    """TRL, as `make check-peers` installs it, with the environment that both learn in."""
    return Peer(
        "trl",
        ["torch==2.13.0", "trl==1.16.0", "transformers==5.23.0", "minigrid==3.2.0"],
        "benchmarks/peers/trl_worker.py",
        environment={"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "src")},
    )


def settings() -> dict[str, Any]:
    """What both sides agree on."""
    return {
        "model": str(practice.checkpoint()),
        "environment": practice.ENVIRONMENT,
        "tasks": practice.TASKS,
        "group": practice.GROUP,
        "turns": practice.TURNS,
        "reply": practice.REPLY,
        "learning_rate": practice.LEARNING_RATE,
        "betas": list(practice.BETAS),
        "clip_norm": practice.CLIP_NORM,
    }


def as_episode(row: Row, value: float) -> dict[str, Any]:
    """A row as TRL wants it: the tokens before the first sampled one, and all after."""
    start = row.mask.index(True)
    return {
        "prompt": row.tokens[:start],
        "completion": row.tokens[start:],
        "mask": [int(on) for on in row.mask[start:]],
        "return": value,
    }


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    model = practice.policy()
    learner = practice.learner_of(model)
    found = practice.recorded(model, 0)
    returns = practice.drawn_returns(len(found), 0)
    rows = practice.on_policy(practice.batch(found, returns), learner)
    trained = sum(sum(row.mask) for row in rows)
    norms: dict[str, list[float]] = {"palaestra": [], "peer": []}

    with peer() as trl:
        request = {
            "settings": settings(),
            "episodes": [as_episode(row, value) for row, value in zip(found, returns, strict=True)],
        }

        def ours() -> float:
            started = time.perf_counter()
            update = learner.update(rows, ppo)
            seconds = time.perf_counter() - started
            norms["palaestra"].append(update.gradient_norm)
            return trained / seconds

        def theirs() -> float:
            answer = trl.ask(request)
            norms["peer"].append(answer["gradient_norm"])
            return float(trained / answer["seconds"])

        ours()
        theirs()  # both warm
        measured = alternate(ours, theirs, options.rounds)
    return [
        Result(
            name="learner: step on 8 tasks x 8 rollouts, against TRL's GRPOTrainer",
            ratio=measured.ratio,
            goal=GOAL,
            low=measured.low,
            high=measured.high,
            figures={
                "palaestra trained tokens/s": measured.ours,
                "peer trained tokens/s": measured.theirs,
                **{f"{side} gradient norm": found[0] for side, found in norms.items()},
            },
        )
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of alternation (3)")


if __name__ == "__main__":
    run(__doc__, measure, _options)
