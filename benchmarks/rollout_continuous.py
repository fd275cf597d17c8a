"""Multi-turn rollout: the resident engine against transformers' own continuous batching.

The same weights and conversations as rollout.py. The manager is kept between turns, so that
blocks of earlier turns can be shared (its prefix cache), and its pages are as small as helps:
    python benchmarks/rollout_continuous.py [--json]
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import workload
from measuring import PeerUnavailable, Result, run
from workload import CONTEXT, SAMPLED, SESSIONS, TOKENS, TURNS, Rollout, World, observations

PAGE = 32  # tokens; a conversation gains 32 a turn


def continuous() -> Rollout:
    """transformers' manager, warmed up."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model = workload.transformers_model()
    sampling = GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=SAMPLED, eos_token_id=-1, pad_token_id=0
    )
    settings = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=2 * SESSIONS * (CONTEXT // PAGE + 1),
        max_batch_tokens=2048,
        return_logprobs=True,  # as ours
    )

    def rollout(world: World) -> float:
        histories: list[list[int]] = [[] for _ in world]
        with model.continuous_batching_context_manager(
            generation_config=sampling, continuous_batching_config=settings
        ) as manager:
            started = time.perf_counter()
            for turn in range(TURNS):
                for history, session in zip(histories, world, strict=True):
                    history += session[turn]
                waiting = dict(zip(manager.add_requests(histories), histories, strict=True))
                while waiting:
                    result = manager.get_result(timeout=60)
                    if result is None or result.error:
                        raise PeerUnavailable(f"transformers stopped: {result and result.error}")
                    if result.is_finished():
                        waiting.pop(result.request_id).extend(result.generated_tokens)
            seconds = time.perf_counter() - started
        sampled = sum(map(len, histories)) - sum(len(new) for s in world for new in s)
        if sampled != TOKENS:
            raise PeerUnavailable(f"transformers sampled {sampled} tokens instead of {TOKENS}")
        return TOKENS / seconds

    rollout(observations(0))
    return rollout


def measure(options: argparse.Namespace) -> list[Result]:
    """One row."""
    label = "transformers continuous batching"
    return [workload.compare(label, continuous(), goal=None, rounds=options.rounds)]


if __name__ == "__main__":
    run(__doc__, measure, workload.options)
