"""Every model type: exactly transformers', acting, learning and on disk."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.packing import Micro, Trained
from palaestra.learning.compute.weight_selection import adapters
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.checkpoint_format import (
    from_hugging_face,
    read_network,
    write_network,
)
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import add_lora, merged
from palaestra.models.local.network import DecoderNetwork
from tests.learning.made import finish, gradients, learner_of, resident

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 128,
    "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
    "partial_rotary_factor": 0.7,
}  # fmt: skip
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
TYPES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 16, "sliding_window": 7},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {
        "head_dim": 16, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1,
    },
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 40, "decoder_sparse_step": 2},
    "qwen3_moe": EXPERTS | {"head_dim": 16, "norm_topk_prob": True, "mlp_only_layers": [1]},
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "gemma2": {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24},
    "gemma3_text": {
        "head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "phi3": {
        "rope_parameters": LONGROPE, "sliding_window": 20, "max_position_embeddings": 256,
        "original_max_position_embeddings": 128,
    },
    "olmo2": {"attention_bias": True},
    "olmo3": {
        "sliding_window": 8, "rope_parameters": {
            "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}
        },
    },
    "granite": {
        "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.1, "logits_scaling": 4.0,
    },
    "glm4": {"head_dim": 16, "hidden_act": "gelu"},
    "gpt_oss": {
        "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8,
        "rope_parameters": YARN | {"truncate": False},
    },
}  # fmt: skip


def made(name: str, seed: int = 0, **changed: Any) -> Any:
    """Return transformers' model of a type, small, with weights at random."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **{**SIZES, **TYPES[name], **changed})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for own, parameter in model.named_parameters():
            narrow = own.endswith("embed_tokens.weight") and config.tie_word_embeddings
            torch.nn.init.normal_(parameter, std=0.1 if narrow else 0.2)
            if "norm" in own and not name.startswith("gemma"):
                parameter.add_(1)
    return model


class Pair(NamedTuple):
    """One network, theirs and ours, and the folder that theirs was saved to."""

    theirs: Any
    ours: DecoderNetwork
    folder: Path


@pytest.fixture(scope="module", params=list(TYPES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    theirs = made(request.param)
    theirs.save_pretrained(folder)
    return Pair(theirs, read(folder, torch.float32), folder)


def read(folder: Path, dtype: torch.dtype) -> DecoderNetwork:
    """Return a network for sequences of up to 128 tokens."""
    network = read_network(folder, dtype)
    network.context = 128
    return network


def tokens(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, SIZES["vocab_size"], (count,), generator=generator).tolist()


STEM = tokens(13, 0)
ROWS = [[*STEM, *tokens(30, 1)], [*STEM, *tokens(9, 2)], [*STEM[:6], *tokens(21, 3)], tokens(17, 4)]
TRAINED = [
    Trained(
        row,
        [False, *(number % 3 > 0 for number in range(1, len(row)))],
        advantage=[((7 * number) % 5 - 1.7) / 3 for number in range(len(row))],
        weight=[0.1] * len(row),
    )
    for row in ROWS
]


def logits_of(network: DecoderNetwork, rows: list[list[int]]) -> list[Tensor]:
    """Return the logits of each row, computed as the learner does: what rows share, once."""
    micro = Micro([Trained(row, [False] * len(row)) for row in rows], network)
    paths = micro.attend.rows
    with torch.no_grad():
        hidden = micro.hidden()
        return [network.logits(hidden[list(path)]) for path in paths]


def off(found: Tensor, wanted: Tensor) -> float:
    """Return the greatest difference, relative to the greatest entry."""
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@torch.no_grad()
def test_logits_are_those_of_transformers(pair: Pair) -> None:
    for row, ours in zip(ROWS, logits_of(pair.ours, ROWS), strict=True):
        theirs = pair.theirs(torch.tensor([row])).logits[0]
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_narrow_numbers_are_as_good_as_those_of_transformers(pair: Pair) -> None:
    theirs = copy.deepcopy(pair.theirs).bfloat16()
    ours = read(pair.folder, torch.bfloat16)
    errors = torch.zeros(2, dtype=torch.float64)
    for row, found in zip(ROWS, logits_of(ours, ROWS), strict=True):
        exact = pair.theirs(torch.tensor([row])).logits[0].double()
        given = theirs(torch.tensor([row])).logits[0]
        errors += torch.stack([(x.double() - exact).square().mean() for x in (found, given)])

    assert errors[0].sqrt() <= 1.3 * errors[1].sqrt()


@torch.no_grad()
def test_greedy_replies_are_those_of_transformers(pair: Pair) -> None:
    engine = Engine(
        pair.ours, frozenset(), slots=4, context=64, block=4, memory=2**22, step_tokens=16
    )
    forks = [STEM, ROWS[0][:31], [*STEM, 5], [*STEM, 6, 7], ROWS[0][:31], tokens(3, 5)]
    for prompts in (forks, [[*forks[1], 9, 9]]):  # the second finds its prefix in the cache
        for request in finish(engine, [engine.submit(p, Sampling(0.0, 12), 0) for p in prompts]):
            whole = torch.tensor([[*request.tokens, *request.completion]])
            theirs = pair.theirs(whole).logits[0, len(request.tokens) - 1 : -1].argmax(dim=-1)
            assert request.completion == theirs.tolist()
            assert len(request.completion) == 12


def their_gradients(theirs: Any, network: DecoderNetwork) -> dict[str, Tensor]:
    """Return transformers' gradient of the rows' loss, by the names of our parameters."""
    theirs.zero_grad()
    for row in TRAINED:
        every = theirs(torch.tensor([row.tokens])).logits[0, :-1].log_softmax(dim=-1)
        lp = every.gather(1, torch.tensor(row.tokens[1:])[:, None]).squeeze(1)
        factor = torch.tensor(row.advantage[1:]) * torch.tensor(row.weight[1:])
        (-(lp * factor)[torch.tensor(row.mask[1:])]).sum().backward()
    named = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in theirs.named_parameters()
    }
    return from_hugging_face(network, as_stored(theirs, named), torch.float32)


def as_stored(theirs: Any, named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of a model's parameters by their names in a checkpoint."""
    twin = copy.deepcopy(theirs)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(named[name])
    return stored(twin)


def stored(theirs: Any) -> dict[str, Tensor]:
    """Return what transformers saves of a model."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return loaded(Path(folder))


def loaded(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("most", [10_000, 30])
def test_gradients_are_those_of_transformers(pair: Pair, most: int) -> None:
    learner = learner_of(copy.deepcopy(pair.ours), micro_tokens=most)
    found = gradients(learner, TRAINED, pg)
    wanted = their_gradients(pair.theirs, pair.ours)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        if float(gradient.abs().max()) > 1e-7:
            assert off(found[name], gradient) <= 1e-4, name


def test_adapters_get_the_gradients_that_their_weights_give_them(
    pair: Pair, tmp_path: Path
) -> None:
    network = copy.deepcopy(pair.ours)
    add_lora(network, 3, seed=1)
    chosen = adapters(network)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in chosen.parameters.items():
            if "lora_B" in name:  # else the other half would have no gradient
                parameter.normal_(std=0.05, generator=generator)
    start = {name: p.detach().clone() for name, p in chosen.parameters.items()}
    write_network(merged(network), tmp_path)
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    whole = their_gradients(theirs, pair.ours)
    learner = Learner(resident(network), chosen, Optimisation(1e-3, clip_norm=1e9))
    found = gradients(learner, TRAINED, pg)
    assert any("experts" in name for name in found) == any(
        traits.experts is not None for traits in pair.ours.config.layers
    )
    for name, a in start.items():
        if "lora_A" not in name:
            continue
        other = name.replace("lora_A", "lora_B")
        of_weight = whole[name.replace(".lora_A.default", ".weight")]
        b = start[other]
        scale = 2.0  # alpha over rank
        for own, wanted in ((name, scale * b.T @ of_weight), (other, scale * of_weight @ a.T)):
            if float(wanted.abs().max()) > 1e-7:
                assert off(found[own], wanted) <= 1e-4, own


def test_the_memory_of_learning_can_be_planned_without_weights(pair: Pair) -> None:
    with torch.device("meta"):
        network = DecoderNetwork(pair.ours.config)
    planned = needs_of(network, dict(network.named_parameters()))
    assert planned == needs_of(pair.ours, dict(pair.ours.named_parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_written_is_what_was_read(pair: Pair, tmp_path: Path, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM

    theirs = copy.deepcopy(pair.theirs).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_network(tmp_path / "theirs", dtype)
    write_network(ours, tmp_path / "ours")
    before, after = (loaded(tmp_path / name) for name in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto")
    assert back.dtype == dtype
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    left, right = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours")
    )
    left.pop("dtype", None)
    assert left == right


@torch.no_grad()
@pytest.mark.parametrize("context", [128, 16])
def test_longrope_has_other_factors_in_a_long_context(tmp_path: Path, context: int) -> None:
    rope = LONGROPE | {"original_max_position_embeddings": 16}
    changed = {"rope_parameters": rope, "original_max_position_embeddings": 16}
    theirs = made("phi3", **changed)
    theirs.save_pretrained(tmp_path)
    ours = read_network(tmp_path, torch.float32)
    engine = Engine(ours, frozenset(), slots=1, context=context, memory=2**22)
    assert engine.context == ours.context == context
    rows = [ROWS[0]] if context > 16 else [STEM]  # longer, and shorter, than 16 tokens
    for row, found in zip(rows, logits_of(ours, rows), strict=True):
        wanted = theirs(torch.tensor([row])).logits[0]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
