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
from palaestra.models.local.kernels.packed_matmul import (
    SOURCE,
    Matrix,
    NativePacked,
    native_packed,
)
from palaestra.models.local.kernels.weight_packing import native_packing
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import WideLinear, packed, packed_layers, packs

pytestmark = pytest.mark.skipif(native_packed() is None, reason="no C compiler with OpenMP")

ON_X86 = platform.machine() == "x86_64"
FLAGS = ([], ["-march=haswell"], ["-march=x86-64"]) if ON_X86 else ([],)  # 512, 256 and 128 bits
NATIVES = [NativePacked(found) for flags in FLAGS if (found := compiled(SOURCE, flags))]


def random(*shape: int, seed: int, exact: bool) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.bfloat16().float() if exact else numbers


def product(native: NativePacked, x: Tensor, parts: list[Tensor]) -> Tensor:
    """Return the product with a matrix packed in parts, all in bf16 or all in fp32."""
    packing = native_packing()
    assert packing is not None
    packed = packing.pack(parts)
    sizes = sum(map(len, parts)), parts[0].shape[1]
    narrow = parts[0].dtype is torch.bfloat16
    return native.multiply(x, Matrix.of(packed, *sizes, narrow=narrow))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NATIVES),
    st.integers(1, 300),
    st.integers(1, 140),
    st.lists(st.integers(1, 120), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 99),
)
def test_it_is_the_product_with_the_rows_of_all_parts(
    native: NativePacked, rows: int, inputs: int, outputs: list[int], narrow: bool, seed: int
) -> None:
    x = random(rows, inputs, seed=seed, exact=False)
    weight = random(sum(outputs), inputs, seed=seed + 1, exact=narrow)
    parts = list((weight.bfloat16() if narrow else weight).split(outputs))
    found, wanted = product(native, x, parts), x.double() @ weight.double().T
    assert found.shape == wanted.shape
    slack = 2e-6 * (x.double().abs() @ weight.double().abs().T)  # what fp32 sums lose
    assert bool(((found.double() - wanted).abs() <= slack).all())


@pytest.mark.parametrize("native", NATIVES)
def test_weights_in_bf16_give_the_bits_of_the_same_weights_in_fp32(native: NativePacked) -> None:
    weight = random(96, 131, seed=0, exact=True)
    x = random(40, 131, seed=1, exact=False)
    assert torch.equal(product(native, x, [weight]), product(native, x, [weight.bfloat16()]))


@pytest.mark.parametrize("native", NATIVES)
def test_a_row_does_not_depend_on_the_others(native: NativePacked) -> None:
    x, weight = (random(n, 130, seed=n, exact=False) for n in (300, 100))
    whole = product(native, x, [weight])
    for count in (1, 3, 8, 19, 257):
        assert torch.equal(product(native, x[:count], [weight]), whole[:count])
    assert torch.equal(product(native, x[::2], [weight]), whole[::2])  # rows with gaps


@pytest.mark.skipif(not packs(torch.float32), reason="no vectors of 256 bits")
def test_a_layer_in_fp32_stores_bf16_where_that_rounds_nothing() -> None:
    weight = random(96, 64, seed=0, exact=True)
    (layer,) = packed_layers([[weight]], torch.float32)
    assert 2 * layer.packed.nbytes == weight.nbytes
    weight[37, 11] = 1 + 2**-20
    (layer,) = packed_layers([[weight]], torch.float32)
    assert layer.packed.nbytes == weight.nbytes
    assert torch.equal(layer(torch.eye(64)), weight.T)


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
    wanted = F.linear(x, network.embedding.weight)
    # sums near zero lose 2e-6 of the sum of their magnitudes
    torch.testing.assert_close(acting.head(x), wanted, rtol=1e-5, atol=1e-4)
    network.embedding.weight.mul_(2)  # the copy holds what it was made of
    assert not torch.allclose(acting.head(x), F.linear(x, network.embedding.weight))
