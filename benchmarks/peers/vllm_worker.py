"""vLLM on processors, as a peer's worker: runs the conversations of workload.py.

Prefix caching is on and its blocks are small, so that a turn recomputes next to nothing of
the turns before. Runs in the peer's environment (see serving.py).
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from vllm import LLM, SamplingParams


@cache
def engine(model: str) -> LLM:
    return LLM(
        model=model,
        dtype="bfloat16",
        max_model_len=512,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        block_size=32,
        enable_prefix_caching=True,
        disable_log_stats=True,
        seed=0,
    )


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """{"model", "world", "sampled"} to {"seconds", "tokens"}."""
    llm, world = engine(request["model"]), request["world"]
    sampling = SamplingParams(
        temperature=1.0,
        min_tokens=request["sampled"],
        max_tokens=request["sampled"],
        ignore_eos=True,
        detokenize=False,
        logprobs=0,  # that of the sampled token, as ours
    )
    llm.reset_prefix_cache()
    histories: list[list[int]] = [[] for _ in world]
    tokens = 0
    started = time.perf_counter()
    for turn in range(len(world[0])):
        for history, session in zip(histories, world, strict=True):
            history += session[turn]
        prompts = [{"prompt_token_ids": history} for history in histories]
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        for history, output in zip(histories, outputs, strict=True):
            reply = list(output.outputs[0].token_ids)
            history += reply
            tokens += len(reply)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}
