"""Fused kernels: the same numbers as tensor operations."""

import pytest
import torch

from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.compute.master_weights import MasterOptimiser, Optimisation
from palaestra.learning.compute.shared_prefix_attention import Branches
from palaestra.models.local.kernels import fused
from palaestra.models.local.kernels.c_build import compiled
from palaestra.models.local.kernels.elementwise import gated, rms_norm, rotated
from tests.learning.made import grouped

if fused.load(torch.float32) is None:
    pytest.skip("there is no C compiler with OpenMP here", allow_module_level=True)

N, WIDTH, HEADS, KV_HEADS, D = 37, 40, 4, 2, 16


@pytest.fixture
def uncompiled(monkeypatch):
    """Simulate a machine without a compiler, from the call on."""

    def take_away():
        monkeypatch.setenv("CC", "/there/is/no/compiler")
        fused.load.cache_clear()
        assert fused.load(torch.float32) is None

    yield take_away
    fused.load.cache_clear()


def sampled(*shape, seed=0, dtype=torch.float32, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=g)).to(dtype).requires_grad_()


def norm(dtype):
    x, weight = sampled(N, WIDTH, dtype=dtype, scale=3), sampled(WIDTH, seed=1, dtype=dtype)
    return rms_norm(x, weight, 1e-5), x, weight


def gate(dtype):
    x = sampled(N, 2 * WIDTH, dtype=dtype, scale=4)
    return gated(x), x


def turn(dtype):
    x = sampled(N, HEADS + 2 * KV_HEADS, D, dtype=dtype)
    angles = torch.outer(torch.arange(N), 0.9 ** torch.arange(D // 2)).unsqueeze(1)
    q, k, v = rotated(x, HEADS, KV_HEADS, angles.cos().to(dtype), angles.sin().to(dtype))
    return torch.cat([q, 2 * k, 3 * v], dim=1), x


def attention(dtype):
    q, k, v = (sampled(N, h, D, seed=h, dtype=dtype) for h in (HEADS, KV_HEADS, KV_HEADS))
    rows = [range(20), [*range(7), *range(20, N)]]
    return Branches(rows)(q, k, v), q, k, v


def prediction(dtype, temperature=1.3):
    network = grouped().to(dtype)
    hidden = sampled(N, 32, dtype=dtype, scale=5)
    targets = torch.arange(N) % 24
    lp, nats = token_logprobs(network, hidden, targets, temperature, entropy_gradient=True)
    return torch.cat([lp, nats]), hidden, network.norm, network.embedding.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compute", [norm, gate, turn, attention, prediction])
def test_values_and_gradients_are_those_of_tensor_operations(compute, dtype, uncompiled):
    found = []
    for without in (False, True):
        if without:
            uncompiled()
        out, *inputs = compute(dtype)
        given = sampled(*out.shape, seed=9, dtype=out.dtype).detach()
        out.backward(given)
        found.append([out.detach(), *(x.grad for x in inputs)])
    for ours, plain in zip(*found, strict=True):
        assert ours.dtype is plain.dtype
        scale = float(plain.abs().max())
        worst = float((ours - plain).abs().max()) / scale
        assert worst < (2e-6 if dtype is torch.float32 else 2e-2)
        assert float((ours - plain).norm()) <= 8e-3 * float(plain.norm())


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_visible(poison):
    for dtype in (torch.float32, torch.bfloat16):
        x = sampled(3, WIDTH, dtype=dtype).detach()
        x[1, 5] = poison
        assert not rms_norm(x, torch.ones(WIDTH, dtype=dtype), 1e-5)[1].isfinite().all()
        twice = torch.cat([x, x], dim=1)
        assert not gated(twice)[1].isfinite().all()
        for row in (0, 2):
            assert gated(twice)[row].isfinite().all()


def test_equal_numbers_of_threads_give_equal_bits():
    def gradients():
        out, *inputs = norm(torch.bfloat16)
        return torch.autograd.grad(out.float().square().sum(), inputs)

    for a, b in zip(gradients(), gradients(), strict=True):
        assert torch.equal(a, b)


def test_narrow_gradients_add_up_wide():
    weight = torch.nn.Parameter(torch.ones(1000, 3, dtype=torch.bfloat16))
    optimiser = MasterOptimiser({"weight": weight}, Optimisation(1e-3))
    for part in (256.0, 1.0, 1.0):  # in bf16 the ones would be lost
        (weight * part).sum().backward()
    assert torch.equal(optimiser.master_weights["weight"].grad, torch.full((1000, 3), 258.0))


def test_code_that_does_not_compile_is_code_that_is_not_there(tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("this is no C")
    assert compiled(broken) is None
