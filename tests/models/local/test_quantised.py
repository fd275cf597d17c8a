"""Quantised weights: bounded errors, the same numbers in engine and learner, exact gradients."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Prompt, Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import adapters
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local import quantised
from palaestra.models.local.adapter_files import read_adapter, write_adapter
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.lora import OWN, add_adapter, add_lora, linear_layers, merged, quantise
from palaestra.models.local.name_options import NamedCheckpoint
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.quantisation import FORMATS, Quantisation
from palaestra.models.local.quantised import GROUP, NF4, QuantisedLinear
from tests.learning.made import gradients, grouped, resident, same, sampled_rows
from tests.models.local.checkpoints import small_network

# outputs and inputs: whole blocks and groups, parts of them, and an odd number
SHAPES = [(96, 128), (50, 72), (7, 33), (1, 1), (1600, 64)]
EVERY = pytest.mark.parametrize("format", FORMATS)
PROMPTS = [[5], [7, 8, 9], [1, *range(3, 20)], [1, *range(3, 20), 5, 6]]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def adapted(format: Quantisation, dtype: torch.dtype = torch.float32) -> DecoderNetwork:
    """A quantised network with an adapter of random numbers."""
    network = grouped().to(dtype)
    quantise(network, format)
    add_lora(network, 4, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=generator)
    return network


def dense(network: DecoderNetwork) -> DecoderNetwork:
    """An ordinary network whose matrices are the dequantised ones, with the same adapter."""
    twin = copy.deepcopy(network)
    for place, layer in linear_layers(twin).items():
        base = layer.base_layer
        twin.set_submodule(f"{place}.base_layer", base.plain(network.dtype))
    twin.quantisation = None
    return twin


# ── the formats ──────────────────────────────────────────────────────────────


@given(
    st.integers(1, 60),
    st.integers(1, 140),
    st.floats(-20, 20),
    st.integers(0, 1000),
    st.sampled_from(FORMATS),
)
def test_no_weight_is_off_by_more_than_half_a_step(
    outputs: int, inputs: int, magnitude: float, seed: int, format: Quantisation
) -> None:
    weight = random(outputs, inputs, seed=seed) * 2**magnitude
    layer = QuantisedLinear(weight, format)
    off = (layer.dense(torch.float32) - weight).abs()
    size = inputs if format == "int8" else GROUP
    for group, errors in zip(weight.split(size, 1), off.split(size, 1), strict=True):
        largest = group.abs().amax(1, keepdim=True)
        # scales are bf16: the largest weight itself may be cut by 2^-8 of it
        step = largest / 127 if format == "int8" else largest * (NF4[1] - NF4[0])
        assert (errors <= step / 2 * 1.01 + largest * 2**-8).all()


@EVERY
def test_what_the_format_can_hold_stays_as_it_is(format: Quantisation) -> None:
    numbers = torch.arange(-127, 128) if format == "int8" else torch.tensor(NF4).repeat(8)
    weight = torch.stack([numbers * 0.5, numbers * 3.0, torch.zeros(len(numbers))])
    found = QuantisedLinear(weight, format).dense(torch.float32)
    assert torch.equal(found, weight)
    assert torch.equal(QuantisedLinear(found, format).dense(torch.float32), weight)


@EVERY
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_code_dequantises_as_torch_does(
    format: Quantisation,
    shape: tuple[int, int],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = QuantisedLinear(random(*shape), format)
    ours = layer.dense(dtype)
    monkeypatch.setattr(quantised, "native_packed", lambda: None)
    assert torch.equal(ours, layer.dense(dtype))
    assert torch.equal(ours, layer.dense(torch.float32).to(dtype))


@EVERY
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1, 3, 8, 13, 300])
def test_a_product_is_that_with_the_dequantised_matrix(
    format: Quantisation, shape: tuple[int, int], tokens: int
) -> None:
    layer = QuantisedLinear(random(*shape), format)
    x = random(tokens, shape[1], seed=1)
    with torch.no_grad():
        wanted = F.linear(x, layer.dense(torch.float32))
        torch.testing.assert_close(layer(x), wanted, atol=1e-5, rtol=1e-4)
        narrow = F.linear(x.bfloat16(), layer.dense(torch.bfloat16))
        torch.testing.assert_close(layer(x.bfloat16()), narrow, atol=0.05, rtol=0.02)


@EVERY
def test_a_weight_takes_a_byte_or_half_of_one(format: Quantisation) -> None:
    layer = QuantisedLinear(random(960, 576), format)
    assert layer.nbytes / (960 * 576) < {"int8": 1.01, "nf4": 0.54}[format]


# ── networks ─────────────────────────────────────────────────────────────────


@EVERY
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_a_checkpoint_is_quantised_while_it_is_read(
    format: Quantisation, stored: torch.dtype, tmp_path: Path
) -> None:
    network = small_network().to(stored)
    write_network(network, tmp_path)
    quantise(network, format)
    for dtype in (torch.float32, torch.bfloat16):  # codes do not depend on it
        found = read_network(tmp_path, dtype, format)
        assert found.quantisation == format and found.dtype is dtype
        wanted = network.to(dtype).state_dict()
        assert found.state_dict().keys() == wanted.keys()
        for name, tensor in found.state_dict().items():
            if name.endswith((".codes", ".scales")):
                assert torch.equal(tensor, wanted[name])
    layers = linear_layers(network).values()
    assert layers and all(isinstance(layer, QuantisedLinear) for layer in layers)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_engine_and_learner_have_the_same_log_probabilities(
    format: Quantisation, dtype: torch.dtype
) -> None:
    network = adapted(format, dtype)
    model = resident(network)

    async def ask() -> list[tuple[list[int], list[float]]]:
        prompts = [Prompt((), tuple(p), Sampling(1.0, 12), i) for i, p in enumerate(PROMPTS)]
        found = await asyncio.gather(*map(model.generate, prompts))
        return [(list(one.tokens), list(one.logprobs)) for one in found]

    replies = asyncio.run(ask())
    rows = [
        Trained([*p, *tokens], [False] * len(p) + [True] * len(tokens), advantage=[])
        for p, (tokens, _) in zip(PROMPTS, replies, strict=True)
    ]
    learner = Learner(model, adapters(network), Optimisation(1e-3))
    gaps = [
        abs(theirs - ours)
        for (_, logprobs), row in zip(replies, learner.logprobs(rows), strict=True)
        for theirs, ours in zip(logprobs, row, strict=True)
    ]
    assert gaps
    assert max(gaps) < 1e-4 if dtype is torch.float32 else sum(gaps) / len(gaps) < 0.03


@EVERY
def test_adapters_learn_as_on_a_dense_base_of_the_dequantised_weights(format: Quantisation) -> None:
    network = adapted(format)
    twin = dense(network)
    rows = sampled_rows(6)

    def found(network: DecoderNetwork) -> dict[str, Tensor]:
        learner = Learner(resident(network), adapters(network), Optimisation(1e-3, clip_norm=1e9))
        return gradients(learner, rows, pg)

    ours, theirs = found(network), found(twin)
    assert all(float(gradient.norm()) > 0 for gradient in theirs.values())
    assert same(ours, theirs, 1e-4)


@EVERY
def test_a_pass_keeps_no_dequantised_matrix_for_its_gradients(format: Quantisation) -> None:
    network, plain = adapted(format), grouped()
    add_lora(plain, 4, seed=1)
    ours, theirs = (needs_of(one, adapters(one).parameters) for one in (network, plain))
    assert ours.per_token <= theirs.per_token
    largest = max(
        layer.base_layer.dense(torch.float32).nbytes for layer in linear_layers(network).values()
    )
    assert ours.fixed == theirs.fixed + largest


@EVERY
@torch.no_grad()
def test_the_merged_policy_is_an_ordinary_checkpoint(format: Quantisation, tmp_path: Path) -> None:
    network = adapted(format)
    whole = merged(network)
    assert whole.quantisation is None and whole.state_dict().keys() == grouped().state_dict().keys()
    assert network.quantisation == format  # it stays as it was
    write_network(whole, tmp_path)
    tokens, positions = torch.tensor([3, 5, 9]), torch.arange(3)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: object) -> Tensor:
        return q

    found = read_network(tmp_path, torch.float32)
    outputs = [one.run(one.embed(tokens), positions, attend) for one in (found, network)]
    torch.testing.assert_close(*outputs, atol=1e-4, rtol=1e-4)


def test_an_adapter_knows_the_format_of_its_base(tmp_path: Path) -> None:
    network = small_network()
    quantise(network, "int8")
    add_lora(network, 4, seed=1)
    write_adapter(network, OWN, tmp_path, "base")
    again = small_network()
    quantise(again, "int8")
    add_adapter(again, OWN, read_adapter(tmp_path, again))
    other = small_network()
    quantise(other, "nf4")
    for wrong in (small_network(), other):
        with pytest.raises(InputError, match=r"on a base in int8.*; add quantise=int8"):
            read_adapter(tmp_path, wrong)


def test_an_adapter_of_a_plain_base_may_act_on_a_quantised_one(tmp_path: Path) -> None:
    network = small_network()
    add_lora(network, 4, seed=1)
    write_adapter(network, OWN, tmp_path, "base")
    other = small_network()
    quantise(other, "nf4")
    assert read_adapter(tmp_path, other).keys() == linear_layers(other).keys()


def test_other_layers_are_not_quantised() -> None:
    network = grouped(tied=False)
    quantise(network, "nf4")
    assert isinstance(network.head, nn.Linear)
    assert isinstance(network.embedding, nn.Embedding)


# ── names ────────────────────────────────────────────────────────────────────


def test_a_name_says_the_format() -> None:
    assert NamedCheckpoint.parse("smollm2-135m?quantise=int8").quantise == "int8"
    assert NamedCheckpoint.parse("smollm2-135m").quantise is None


@pytest.mark.parametrize("value", ["", "int4", "INT8", "8"])
def test_a_format_that_is_not_known_is_refused(value: str) -> None:
    with pytest.raises(UnknownName, match="int8, nf4"):
        NamedCheckpoint.parse(f"smollm2-135m?quantise={value}")
