"""Multi-turn rollout: the resident engine against transformers' `generate`, turn by turn.

The same weights (SmolLM2-135M, bf16), the same 32 conversations of 8 turns with
growing context, the same number of tokens sampled per turn. transformers gets each
turn's prompts as one left-padded batch, as a trainer without an engine of its own
does. Rounds alternate; the ratio is sampled tokens per second, ours over theirs:
    python benchmarks/rollout.py [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch
from transformers import AutoModelForCausalLM

from palaestra.core.model import Sampling
from palaestra.models.checkpoint_format import read_network
from palaestra.models.engine import Engine
from palaestra.models.weights import prepare

SESSIONS, TURNS, NEW, SAMPLED, ROUNDS = 32, 8, 28, 4, 3


def observations(seed: int) -> list[list[list[int]]]:
    """For each session and turn, the tokens that the world adds."""
    dice = random.Random(seed)
    first = [dice.randrange(100, 49_000) for _ in range(40)]  # a shared system prompt
    return [
        [
            (first if turn == 0 else []) + [dice.randrange(100, 49_000) for _ in range(NEW)]
            for turn in range(TURNS)
        ]
        for _ in range(SESSIONS)
    ]


def ours(engine: Engine, world: list[list[list[int]]]) -> float:
    engine.clear()
    histories: list[list[int]] = [[] for _ in world]
    started = time.perf_counter()
    for turn in range(TURNS):
        requests = []
        for number, (history, session) in enumerate(zip(histories, world, strict=True)):
            history += session[turn]
            requests.append(engine.submit(history, Sampling(1.0, SAMPLED), number))
        while engine.pending:
            engine.step()
        for history, request in zip(histories, requests, strict=True):
            history += request.completion
    return SESSIONS * TURNS * SAMPLED / (time.perf_counter() - started)


def theirs(model: AutoModelForCausalLM, world: list[list[list[int]]]) -> float:
    histories: list[list[int]] = [[] for _ in world]
    started = time.perf_counter()
    for turn in range(TURNS):
        for history, session in zip(histories, world, strict=True):
            history += session[turn]
        prompts = torch.tensor(histories)  # equally long here: no padding to pay for
        replies = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            min_new_tokens=SAMPLED,
            max_new_tokens=SAMPLED,
            pad_token_id=0,
        )
        for history, reply in zip(histories, replies[:, prompts.shape[1] :].tolist(), strict=True):
            history += reply
    return SESSIONS * TURNS * SAMPLED / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = prepare("smollm2-135m", print if not options.json else (lambda text: None))
    engine = Engine(read_network(folder, torch.bfloat16), frozenset(), slots=SESSIONS + 1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    ours(engine, observations(0))  # warm up
    pairs = [
        (ours(engine, observations(seed)), theirs(model, observations(seed)))
        for seed in range(1, ROUNDS + 1)
    ]
    ratios = sorted(a / b for a, b in pairs)
    row = {
        "name": f"rollout, {SESSIONS} sessions x {TURNS} turns, against transformers generate",
        "ratio": statistics.median(ratios),
        "low": ratios[0],
        "high": ratios[-1],
        "ours_tokens_per_second": statistics.median(a for a, _ in pairs),
        "transformers_tokens_per_second": statistics.median(b for _, b in pairs),
    }
    print(json.dumps(row, indent=2) if options.json else row)


if __name__ == "__main__":
    main()
