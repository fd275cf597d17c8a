"""Multi-turn rollout: the resident engine against transformers' `generate`, turn by turn.

The same weights (SmolLM2-135M, bf16) and the same conversations (see workload.py). transformers
gets each turn's prompts as one batch of equal length, as a trainer without an engine of its own
does; the ratio is sampled tokens per second:
    python benchmarks/rollout.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
import workload
from measuring import Result, run
from workload import SAMPLED, SESSIONS, TURNS, Rollout, World, observations


def generate(
    model: Any = None, sessions: int = SESSIONS, dtype: torch.dtype = torch.bfloat16
) -> Rollout:
    """transformers, warmed up; None: SmolLM2 in `dtype`."""
    model = workload.transformers_model(dtype) if model is None else model

    def rollout(world: World) -> float:
        world = world[:sessions]
        histories: list[list[int]] = [[] for _ in world]
        started = time.perf_counter()
        for turn in range(TURNS):
            for history, session in zip(histories, world, strict=True):
                history += session[turn]
            prompts = torch.tensor(histories, device=model.device)
            replies = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                do_sample=True,
                top_k=0,
                min_new_tokens=SAMPLED,
                max_new_tokens=SAMPLED,
                pad_token_id=0,
            )
            added = replies[:, prompts.shape[1] :].tolist()
            for history, reply in zip(histories, added, strict=True):
                history += reply
        return len(world) * TURNS * SAMPLED / (time.perf_counter() - started)

    rollout(observations(0))
    return rollout


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    return [workload.compare("transformers generate", generate(), goal=6.0, rounds=options.rounds)]


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
