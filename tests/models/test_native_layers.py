"""All blocks in one call: what they give one by one, to the bit."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.model import Sampling
from palaestra.models import engine as engines
from palaestra.models.engine import Engine
from palaestra.models.lora import add_lora
from palaestra.models.native_matmul import native_matmul
from palaestra.models.network import DecoderNetwork, NetworkConfig

VOCABULARY = 200

compiled = pytest.mark.skipif(
    native_matmul() is None, reason="no C compiler, or a processor without products of bf16"
)


def network(heads: int, kv_heads: int, seed: int = 0) -> DecoderNetwork:
    """Wide enough for its matrices to be packed."""
    torch.manual_seed(seed)
    config = NetworkConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=384, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=128,
        rms_norm_eps=1e-5, rope_theta=10_000.0, tie_word_embeddings=True,
    )  # fmt: skip
    made = DecoderNetwork(config).requires_grad_(False)
    made.embedding.weight.mul_(0.1)  # else the last token is always said again
    return made.bfloat16()


NETWORKS = {shape: network(*shape) for shape in ((4, 4), (8, 2), (16, 16))}


def lived(engine: Engine, lengths: list[int], seed: int) -> list[object]:
    """Everything that requests with such prompts get, the second half of them in groups."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(VOCABULARY) for _ in range(length)] for length in lengths]
    requests = [
        engine.submit(prompt, Sampling(1.0, dice.randrange(2, 12)), number)
        for number, prompt in enumerate(prompts + prompts[len(prompts) // 2 :])
    ]
    while engine.pending:
        engine.step()
    return [(r.completion, r.logprobs, r.entropies, r.finish) for r in requests]


@compiled
@settings(max_examples=15)
@given(
    st.sampled_from(sorted(NETWORKS)),
    st.lists(st.integers(1, 90), min_size=1, max_size=12),
    st.integers(0, 99),
)
def test_one_call_gives_what_the_layers_give_one_by_one(
    shape: tuple[int, int], lengths: list[int], seed: int
) -> None:
    found = {}
    for whole in (True, False):
        engine = Engine(NETWORKS[shape], frozenset(), slots=8, context=128, memory=2**24)
        with pytest.MonkeyPatch.context() as patch:
            if not whole:
                patch.setattr(engines, "native_layers", lambda *given: None)
            found[whole] = lived(engine, lengths, seed)
        assert (engine._layers is not None) == whole
    assert found[True] == found[False]


@compiled
def test_new_weights_are_taken_at_once() -> None:
    first, second = network(4, 4), network(4, 4, seed=1)
    engine = Engine(first, frozenset(), slots=2, context=128, memory=2**24)
    before = lived(engine, [5, 9], 0)
    first.load_state_dict(second.state_dict())
    engine.clear()
    assert engine._acting is engine._layers is None  # the packed copy is free while one learns
    fresh = Engine(second, frozenset(), slots=2, context=128, memory=2**24)
    assert [row[:2] for row in lived(engine, [5, 9], 0)] == [
        row[:2] for row in lived(fresh, [5, 9], 0)
    ]
    assert before != lived(fresh, [5, 9], 0)


@compiled
def test_layers_that_are_not_plain_go_one_by_one() -> None:
    with_lora = network(4, 4)
    add_lora(with_lora, rank=2, seed=0)
    for other in (with_lora, network(4, 4).float()):
        engine = Engine(other, frozenset(), slots=2, context=128, memory=2**24)
        lived(engine, [5, 9], 0)
        assert engine._layers is None
