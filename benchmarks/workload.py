"""The rollout that engines are compared on: many conversations with growing context.

Every engine runs the same conversations: 32 sessions that share a system prompt, 8 turns,
in each of which the world adds 28 tokens and the model samples 4. All sessions of a turn
are asked at once, as a trainer with a batch of environments does. Sampled tokens differ
between engines; their number does not.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from limits import Limits, limits, step_seconds
from measuring import Peer, PeerUnavailable, Result, alternate

from palaestra.core.model import Sampling
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import OWN
from palaestra.models.local.model_types import read_config
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import Backend, load_network
from palaestra.models.local.weights import prepare

SESSIONS, TURNS, SHARED, NEW, SAMPLED = 32, 8, 40, 28, 4
TOKENS = SESSIONS * TURNS * SAMPLED  # sampled in one rollout
CONTEXT = SHARED + TURNS * (NEW + SAMPLED)

World = list[list[list[int]]]
"""For each session and turn, the tokens that the world adds."""

Rollout = Callable[[World], float]
"""Lives the conversations of a world; returns sampled tokens per second."""


def observations(seed: int, sessions: int = SESSIONS) -> World:
    dice = random.Random(seed)
    shared = [dice.randrange(100, 49_000) for _ in range(SHARED)]
    return [
        [
            (shared if turn == 0 else []) + [dice.randrange(100, 49_000) for _ in range(NEW)]
            for turn in range(TURNS)
        ]
        for _ in range(sessions)
    ]


def checkpoint(name: str = "smollm2-135m") -> Path:
    """The folder of a model's checkpoint, SmolLM2-135M's by default."""
    return prepare(name, lambda text: None)


def network(backend: Backend = "auto", dtype: torch.dtype = torch.bfloat16) -> DecoderNetwork:
    """SmolLM2-135M, on the graphics processor if there is one."""
    loaded = load_network(checkpoint(), dtype, backend)
    return loaded.cuda() if torch.cuda.is_available() else loaded


def transformers_model(dtype: torch.dtype = torch.bfloat16) -> Any:
    """The same weights as transformers runs them."""
    from transformers import AutoModelForCausalLM

    load: Any = AutoModelForCausalLM.from_pretrained  # its annotations do not fit its own use
    model = load(checkpoint(), dtype=dtype)
    return model.cuda() if torch.cuda.is_available() else model


def gated_model() -> Any:
    """A model like Qwen 3.5, of SmolLM2's size, in bf16 with weights at random."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=49_152,
        hidden_size=640,
        intermediate_size=1792,
        num_hidden_layers=24,  # three of four gated and linear
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=80,
        linear_num_key_heads=8,
        linear_num_value_heads=8,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    model = Qwen3_5ForCausalLM(config).bfloat16().eval()
    return model.cuda() if torch.cuda.is_available() else model


def resident(backend: Backend = "auto") -> Rollout:
    """Palaestra's engine, warmed up."""
    return acting(network(backend))


def acting(
    network: DecoderNetwork,
    adapters: Sequence[str] = (OWN,),
    sessions: int = SESSIONS,
    answer: Sequence[int] = (),
) -> Rollout:
    """Palaestra's engine around a network, warmed up; sessions reply by the adapters in turn.

    At each turn, the log-probabilities of `answer` are measured as well; empty: nothing is.
    """
    engine = Engine(network, frozenset(), slots=SESSIONS + 1, context=512)

    def rollout(world: World) -> float:
        engine.clear()
        world = world[:sessions]
        histories: list[list[int]] = [[] for _ in world]
        started = time.perf_counter()
        for turn in range(TURNS):
            requests = []
            for number, (history, session) in enumerate(zip(histories, world, strict=True)):
                history += session[turn]
                adapter = adapters[number % len(adapters)]
                sampling = Sampling(1.0, SAMPLED)
                requests.append(
                    engine.submit(history, sampling, number, adapter=adapter, answer=answer)
                )
            while engine.pending:
                engine.step()
            for history, request in zip(histories, requests, strict=True):
                history += request.completion
        seconds = time.perf_counter() - started
        sampled = sum(map(len, histories)) - sum(len(new) for s in world for new in s)
        wanted = tokens_of(world)
        assert sampled == wanted, f"{sampled} tokens were sampled instead of {wanted}"
        return wanted / seconds

    rollout(observations(0, sessions))
    return rollout


def tokens_of(world: World) -> int:
    """Tokens that are sampled in one rollout."""
    return sum(map(len, world)) * SAMPLED


def hosted(peer: Peer, model: Path, sessions: int = SESSIONS) -> Rollout:
    """A peer's worker that answers {"model", "world", "sampled"} with {"seconds", "tokens"}."""

    def rollout(world: World) -> float:
        answer = peer.ask({"model": str(model), "world": world, "sampled": SAMPLED})
        wanted = tokens_of(world)
        if answer["tokens"] != wanted:
            raise PeerUnavailable(
                f"the peer '{peer.name}' sampled {answer['tokens']} tokens instead of {wanted}"
            )
        return float(wanted / answer["seconds"])

    rollout(observations(0, sessions))
    return rollout


def rollout_limit(config: NetworkConfig, machine: Limits) -> float:
    """Sampled tokens per second that no engine can exceed which computes each token once."""
    seconds, context = 0.0, float(SHARED)
    for turn in range(TURNS):
        # what the world adds, and the last token sampled before, which was never run
        prompt = SESSIONS * (NEW + (turn > 0)) + SHARED * (turn == 0)
        seconds += step_seconds(config, prompt, SESSIONS, SESSIONS, context + NEW / 2, machine)
        context += NEW
        for _ in range(SAMPLED - 1):
            context += 1
            seconds += step_seconds(config, SESSIONS, SESSIONS, SESSIONS, context, machine)
        context += 1
    return TOKENS / seconds


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of alternation (5)")


def compare(label: str, theirs: Rollout, *, goal: float | None, rounds: int) -> Result:
    """Palaestra's engine against a warmed-up peer's, on new conversations each round."""
    limit = rollout_limit(read_config(checkpoint()), limits())
    found = compared(f"against {label}", resident(), theirs, goal=goal, rounds=rounds)
    figures = found.figures | {"limit tokens/s": limit}
    share = found.figures["palaestra tokens/s"] / limit
    return replace(found, limit_fraction=share, figures=figures)


def compared(
    what: str,
    ours: Rollout,
    theirs: Rollout,
    *,
    goal: float | None,
    rounds: int,
    sessions: int = SESSIONS,
) -> Result:
    """Two warmed-up rollouts, on new conversations each round; without a limit."""
    measured = alternate(rounds_of(ours, sessions), rounds_of(theirs, sessions), rounds)
    return Result(
        name=f"rollout, {sessions} sessions x {TURNS} turns, {what}",
        ratio=measured.ratio,
        goal=goal,
        low=measured.low,
        high=measured.high,
        figures={"palaestra tokens/s": measured.ours, "peer tokens/s": measured.theirs},
    )


def rounds_of(rollout: Rollout, sessions: int = SESSIONS) -> Callable[[], float]:
    """Rounds of their own seeds, the same ones for both sides."""
    seeds = itertools.count(1)
    return lambda: rollout(observations(next(seeds), sessions))
