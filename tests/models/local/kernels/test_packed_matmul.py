"""Products with packed weights in fp32, on vectors of every width that this machine has."""

from __future__ import annotations

import platform

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.packed_matmul import SOURCE, NativePacked, native_packed
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import WideLinear, packed, packs

pytestmark = pytest.mark.skipif(native_packed() is None, reason="no C compiler with OpenMP")

ON_X86 = platform.machine() == "x86_64"
FLAGS = ([], ["-march=haswell"], ["-march=x86-64"]) if ON_X86 else ([],)  # 512, 256 and 128 bits
NATIVES = [NativePacked(found) for flags in FLAGS if (found := compiled(SOURCE, flags))]


def random(*shape: int, seed: int, exact: bool) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.bfloat16().float() if exact else numbers


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NATIVES),
    st.integers(1, 300),
    st.integers(1, 140),
    st.integers(1, 120),
    st.booleans(),
    st.integers(0, 99),
)
def test_it_is_the_product(
    native: NativePacked, rows: int, inputs: int, outputs: int, exact: bool, seed: int
) -> None:
    x = random(rows, inputs, seed=seed, exact=False)
    weight = random(outputs, inputs, seed=seed + 1, exact=exact)
    wanted = x.double() @ weight.double().T
    tensor, matrix = native.pack(weight)
    found = native.multiply(x, matrix)
    assert found.shape == (rows, outputs) and tensor.nbytes >= weight.nbytes / (2 if exact else 1)
    slack = 2e-6 * (x.double().abs() @ weight.double().abs().T)  # what fp32 sums lose
    assert bool(((found.double() - wanted).abs() <= slack).all())


@pytest.mark.parametrize("native", NATIVES)
def test_weights_of_bf16_take_half_the_memory_and_give_the_same_bits(
    native: NativePacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = random(96, 131, seed=0, exact=True)
    x = random(40, 131, seed=1, exact=False)
    narrow, matrix = native.pack(weight)
    found = native.multiply(x, matrix)
    monkeypatch.setattr(native, "_fits", lambda *given: 0)
    whole, matrix = native.pack(weight)
    assert torch.equal(found, native.multiply(x, matrix))
    assert narrow.nbytes * 131 == whole.nbytes * 66  # an odd number of inputs, in pairs


@pytest.mark.parametrize("native", NATIVES)
def test_one_weight_that_is_none_of_bf16_is_not_rounded(native: NativePacked) -> None:
    weight = random(50, 64, seed=0, exact=True)
    weight[37, 11] = 1 + 2**-20
    _tensor, matrix = native.pack(weight)
    found = native.multiply(torch.eye(64), matrix)
    assert torch.equal(found, weight.T)


@pytest.mark.parametrize("native", NATIVES)
def test_a_row_does_not_depend_on_the_others(native: NativePacked) -> None:
    x = random(300, 130, seed=0, exact=False)
    _tensor, matrix = native.pack(random(100, 130, seed=1, exact=False))
    whole = native.multiply(x, matrix)
    for count in (1, 3, 8, 19, 257):
        assert torch.equal(native.multiply(x[:count], matrix), whole[:count])
    assert torch.equal(native.multiply(x[::2], matrix), whole[::2])  # rows with gaps


@pytest.mark.skipif(not packs(torch.float32), reason="no vectors of 256 bits")
def test_a_network_in_fp32_acts_with_packed_weights_and_keeps_its_own() -> None:
    config = NetworkConfig(
        vocab_size=300, hidden_size=256, intermediate_size=384, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    network = DecoderNetwork(config).requires_grad_(False)
    acting = packed(network)
    assert isinstance(acting.head, WideLinear) and network.head is None
    assert isinstance(acting.blocks[0].down, WideLinear)
    x = torch.randn(5, 256)
    torch.testing.assert_close(acting.head(x), F.linear(x, network.embedding.weight))
    network.embedding.weight.mul_(2)  # the copy holds what it was made of
    assert not torch.allclose(acting.head(x), F.linear(x, network.embedding.weight))
