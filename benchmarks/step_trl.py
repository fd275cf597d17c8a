"""A whole step of reinforcement learning, rollouts and learning, against TRL's GRPOTrainer.

The same tasks, environment, model, group size and limits (see practice.py): 8 tasks x 8
rollouts of up to 8 turns. TRL's rollout function asks transformers' `generate` for all
conversations of a turn at once. Replies are sampled, so episodes differ in length: rates are
tokens of rollouts (prompts, observations and replies) per second of the whole step.
    python benchmarks/step_trl.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import practice
from learner_trl import peer, settings
from measuring import Result, alternate, run

from palaestra.learning.losses.policy_loss import ppo

GOAL = 3.0


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    model = practice.policy()
    learner = practice.learner_of(model)
    rolled: list[float] = []  # seconds of our rollouts
    numbers, theirs_numbers = itertools.count(), itertools.count()

    def ours() -> float:
        started = time.perf_counter()
        episodes = practice.live(model, next(numbers))
        rolled.append(time.perf_counter() - started)
        found = practice.rows(episodes, model.name)
        learner.update(practice.batch(found, practice.returns_of(episodes)), ppo)
        return sum(len(row.tokens) for row in found) / (time.perf_counter() - started)

    with peer() as trl:

        def theirs() -> float:
            answer = trl.ask({"settings": settings(), "step": next(theirs_numbers)})
            return float(answer["tokens"] / answer["seconds"])

        ours()
        theirs()  # both warm
        measured = alternate(ours, theirs, options.rounds)
    return [
        Result(
            name="RL step: rollouts and learning on 8 tasks x 8 rollouts, against TRL",
            ratio=measured.ratio,
            goal=GOAL,
            low=measured.low,
            high=measured.high,
            figures={
                "palaestra tokens/s": measured.ours,
                "peer tokens/s": measured.theirs,
                "palaestra rollout s": sorted(rolled)[len(rolled) // 2],
            },
        )
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of alternation (3)")


if __name__ == "__main__":
    run(__doc__, measure, _options)
