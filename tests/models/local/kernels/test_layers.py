"""All blocks in one call equal single calls, to the bit."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.model import Sampling
from palaestra.models.local import engine_pass
from palaestra.models.local.architecture import HeadNorm, LayerTraits, NetworkConfig, Rotary
from palaestra.models.local.engine import Engine
from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.lora import add_lora, quantise
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import packs
from palaestra.models.local.quantisation import FORMATS

VOCABULARY = 200

DTYPES = [torch.bfloat16] if native_matmul() is not None else []
DTYPES += [torch.float32] if packs(torch.float32) else []
compiled = pytest.mark.skipif(
    not DTYPES, reason="no C compiler, or a processor without products of our own"
)


def network(
    heads: int, kv_heads: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16, **traits: Any
) -> DecoderNetwork:
    """Return a network wide enough for its matrices to be packed."""
    torch.manual_seed(seed)
    config = NetworkConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=384, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=128,
        rms_norm_eps=1e-5, tie_word_embeddings=True, **traits,
    )  # fmt: skip
    made = DecoderNetwork(config).requires_grad_(False)
    for parameter in made.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.2 * torch.randn(parameter.shape))
    made.embedding.weight.mul_(0.1)  # otherwise it always repeats the last token
    return made.to(dtype)


TRAITS: dict[str, dict[str, Any]] = {
    "biases": {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "normed heads": {"head_norm": HeadNorm.HEAD, "head_dim": 48},
    "all heads normed": {"head_norm": HeadNorm.WHOLE, "norm_before": False, "norm_after": True},
    "multipliers": {"norm_after": True, "residual_multiplier": 0.3, "attention_scale": 0.05},
    "positions": {
        "layers": (LayerTraits(Rotary(share=0.5, magnitude=1.2), 128), LayerTraits(Rotary(share=0)))
    },
}
NETWORKS: dict[str, DecoderNetwork] = {}
for dtype in DTYPES:
    for shape in ((4, 4), (8, 2), (16, 16)):
        NETWORKS[f"{shape} {dtype}"] = network(*shape, dtype=dtype)
    for name, traits in TRAITS.items():
        NETWORKS[f"{name} {dtype}"] = network(8, 2, dtype=dtype, **traits)
    for format in FORMATS:
        NETWORKS[f"{format} {dtype}"] = network(8, 2, dtype=dtype)
        quantise(NETWORKS[f"{format} {dtype}"], format)


def roll_out(engine: Engine, lengths: list[int], seed: int) -> list[object]:
    """Return the results of requests with such prompts, the second half of them in groups."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in lengths]
    requests = [
        engine.submit(prompt, Sampling(1.0, rng.randrange(2, 12)), number)
        for number, prompt in enumerate(prompts + prompts[len(prompts) // 2 :])
    ]
    while engine.pending:
        engine.step()
    return [(r.completion, r.logprobs, r.entropies, r.finish) for r in requests]


@compiled
@settings(max_examples=40)
@given(
    st.sampled_from(sorted(NETWORKS)),
    st.lists(st.integers(1, 90), min_size=1, max_size=12),
    st.integers(0, 99),
)
def test_one_call_gives_what_the_layers_give_one_by_one(
    kind: str, lengths: list[int], seed: int
) -> None:
    found = {}
    for whole in (True, False):
        engine = Engine(NETWORKS[kind], frozenset(), slots=8, context=128, memory=2**24)
        with pytest.MonkeyPatch.context() as patch:
            if not whole:
                patch.setattr(engine_pass, "native_layers", lambda *given: None)
            found[whole] = roll_out(engine, lengths, seed)
        assert (engine.forward.layers is not None) == whole
    assert found[True] == found[False]


@compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_new_weights_are_taken_at_once(dtype: torch.dtype) -> None:
    first, second = network(4, 4, dtype=dtype), network(4, 4, seed=1, dtype=dtype)
    engine = Engine(first, frozenset(), slots=2, context=128, memory=2**24)
    before = roll_out(engine, [5, 9], 0)
    first.load_state_dict(second.state_dict())
    engine.clear()
    prepared = engine.forward  # the packed copy is free while one learns
    assert prepared.acting is prepared.layers is None
    fresh = Engine(second, frozenset(), slots=2, context=128, memory=2**24)
    assert [row[:2] for row in roll_out(engine, [5, 9], 0)] == [
        row[:2] for row in roll_out(fresh, [5, 9], 0)
    ]
    assert before != roll_out(fresh, [5, 9], 0)


@compiled
def test_layers_that_are_not_plain_go_one_by_one() -> None:
    with_lora = network(4, 4)
    add_lora(with_lora, rank=2, seed=0)
    windows = network(4, 4, layers=(LayerTraits(window=64), LayerTraits()))
    for other in (with_lora, network(4, 4).double(), network(4, 4, norm_offset=1.0), windows):
        engine = Engine(other, frozenset(), slots=2, context=128, memory=2**24)
        roll_out(engine, [5, 9], 0)
        assert engine.forward.layers is None
