"""Elementwise operations: the plain formulas, and their derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from palaestra.models.local.kernels.elementwise import gated, rms_norm, rotated

N, WIDTH, HEADS, KV_HEADS, D = 5, 12, 4, 2, 6


def sampled(*shape, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()


def angles(count=N):
    x = torch.outer(torch.arange(count, dtype=torch.float64), torch.tensor([1.0, 0.3, 0.1]))
    return x.cos().unsqueeze(1).double(), x.sin().unsqueeze(1).double()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_norm_is_torchs_own(dtype):
    x, weight = sampled(N, WIDTH, dtype=dtype), sampled(WIDTH, seed=1, dtype=dtype)
    ours, theirs = rms_norm(x, weight, 1e-5), F.rms_norm(x, (WIDTH,), weight, 1e-5)
    assert ours.dtype is dtype
    torch.testing.assert_close(ours, theirs)
    given = sampled(N, WIDTH, seed=2, dtype=dtype).detach()
    for a, b in zip(*(torch.autograd.grad(y, (x, weight), given) for y in (ours, theirs))):  # noqa: B905
        torch.testing.assert_close(a, b)


def test_the_gate_is_swiglus():
    x = sampled(N, 2 * WIDTH)
    gate, up = x.chunk(2, dim=-1)
    torch.testing.assert_close(gated(x), F.silu(gate) * up)


def test_queries_and_keys_turn_with_their_positions_and_values_do_not():
    qkv, (cos, sin) = sampled(N, HEADS + 2 * KV_HEADS, D), angles()
    q, k, v = rotated(qkv, HEADS, KV_HEADS, cos, sin)
    numbers = torch.complex(*qkv.detach().chunk(2, dim=-1)) * torch.complex(cos, sin)
    wanted = torch.cat([numbers.real, numbers.imag], dim=-1)
    torch.testing.assert_close(q, wanted[:, :HEADS])
    torch.testing.assert_close(k, wanted[:, HEADS : HEADS + KV_HEADS])
    assert torch.equal(v, qkv[:, HEADS + KV_HEADS :])


def test_their_derivatives_are_right():
    cos, sin = angles()
    assert gradcheck(lambda x, w: rms_norm(x, w, 1e-5), (sampled(N, WIDTH), sampled(WIDTH, seed=1)))
    assert gradcheck(gated, (sampled(N, 2 * WIDTH),))
    assert gradcheck(
        lambda x: rotated(x, HEADS, KV_HEADS, cos, sin), (sampled(N, HEADS + 2 * KV_HEADS, D),)
    )


def test_a_frozen_norm_hands_the_gradient_on():
    x, weight = sampled(N, WIDTH), sampled(WIDTH, seed=1).detach()
    rms_norm(x, weight, 1e-5).sum().backward()
    assert weight.grad is None
    assert float(x.grad.norm()) > 0
