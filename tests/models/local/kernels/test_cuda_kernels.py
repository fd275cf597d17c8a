"""CUDA kernels against tensor operations on the CPU."""

from __future__ import annotations

import pytest
import torch

from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.compute.shared_prefix_attention import Branches, PaddedRows
from palaestra.models.local.attention import Scores
from palaestra.models.local.engine_attention import StepAttention
from palaestra.models.local.kernels.elementwise import gated, rms_norm, rotated
from palaestra.models.local.kernels.fused import kernels_for, triton_kernels
from palaestra.models.local.sampling import sample
from tests.learning.made import grouped

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or triton_kernels() is None,
    reason="no CUDA device with Triton: its functions are not covered here",
)

N, WIDTH, HEADS, KV_HEADS, D = 37, 40, 6, 2, 16
DTYPES = [torch.float32, torch.bfloat16]


def sampled(*shape, seed=0, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=g)


def norm(put):
    x, weight = put(sampled(N, WIDTH, scale=3)), put(sampled(WIDTH, seed=1))
    return rms_norm(x, weight, 1e-5), x, weight


def gate(put):
    x = put(sampled(N, 2 * WIDTH, scale=4))
    return gated(x), x


def turn(put):
    x = put(sampled(N, HEADS + 2 * KV_HEADS, D))
    angles = torch.outer(torch.arange(N), 0.9 ** torch.arange(D // 2)).unsqueeze(1)
    cos, sin = (put(part).detach() for part in (angles.cos(), angles.sin()))
    q, k, v = rotated(x, HEADS, KV_HEADS, cos, sin)
    return torch.cat([q, 2 * k, 3 * v], dim=1), x


def attention(put):
    q, k, v = (put(sampled(N, h, D, seed=h)) for h in (HEADS, KV_HEADS, KV_HEADS))
    rows = [range(20), [*range(7), *range(20, N)]]
    rows = PaddedRows(rows, N, q.device) if q.is_cuda else Branches(rows)
    return rows(q, k, v), q, k, v


def prediction(put):
    hidden = put(sampled(N, 32, scale=5))
    network = grouped().to(hidden.device, hidden.dtype)
    targets = (torch.arange(N) % 24).to(hidden.device)
    lp, nats = token_logprobs(network, hidden, targets, 1.3, entropy_gradient=True)
    return torch.cat([lp, nats]), hidden, network.norm, network.embedding.weight


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compute", [norm, gate, turn, attention, prediction])
def test_values_and_gradients_are_those_of_the_processor(compute, dtype):
    found = []
    for device in ("cuda", "cpu"):
        out, *inputs = compute(lambda x, to=device: x.to(to, dtype).detach().requires_grad_())
        out.backward(sampled(*out.shape, seed=9).to(device, out.dtype))
        found.append([x.cpu().float() for x in (out.detach(), *(x.grad for x in inputs))])
    for ours, plain in zip(*found, strict=True):
        assert float((ours - plain).abs().max()) < float(plain.abs().max()) * (
            1e-5 if dtype is torch.float32 else 3e-2
        )
        assert float((ours - plain).norm()) <= 1e-2 * float(plain.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [24, 5000, 49_152])
def test_sampled_tokens_are_those_of_the_processor(dtype, vocabulary):
    logits = sampled(64, vocabulary, scale=3).to(dtype)
    logits[2, : vocabulary // 2] = -torch.inf
    temperature = torch.tensor([1.0, 0.7, 0.0, 1.5] * 16)
    uniforms = torch.rand(64, generator=torch.Generator().manual_seed(1))
    uniforms[:4] = torch.tensor([0.0, 1 - 2**-24, 0.5, 1 - 2**-24])
    there = sample(logits.cuda(), temperature.cuda(), uniforms.cuda())
    here = sample(logits.clone(), temperature, uniforms)
    same = there.tokens.cpu() == here.tokens
    assert float(same.float().mean()) > 0.95  # sums are in another order
    assert torch.allclose(there.entropies.cpu(), here.entropies, atol=1e-4)
    assert torch.allclose(there.logprobs.cpu()[same], here.logprobs[same], atol=1e-4)
    assert bool((logits.gather(1, there.tokens.cpu().unsqueeze(1)) > -torch.inf).all())


def test_logits_that_are_no_numbers_are_refused():
    logits = sampled(3, 5000).cuda()
    logits[1, 7] = torch.nan
    assert kernels_for(logits) is not None
    with pytest.raises(FloatingPointError):
        sample(logits, torch.ones(3, device="cuda"), torch.full((3,), 0.5, device="cuda"))


class Store:
    """Keys and values of one layer."""

    def __init__(self, dtype, block=8):
        self.block, self.kv_heads, self.share = block, KV_HEADS, HEADS // KV_HEADS
        shape = (64, KV_HEADS, block, D)
        self.keys, self.values = ([sampled(*shape, seed=s).to(dtype)] for s in (1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [1, 16])
def test_attention_reads_blocks_as_tensor_operations_do(dtype, queries):
    here, starts, counts = Store(dtype), [0, 150, 20, 0], [1, 1, 20, 37]
    if queries == 1:
        starts, counts = [0, 150, 20, 9], [1] * 4
    blocks, slots, tiles, at, free = [], [], [], 0, iter(range(64))
    for number, (start, count) in enumerate(zip(starts, counts, strict=True)):
        blocks.append([next(free) for _ in range(-(-(start + count) // here.block))])
        places = range(start, start + count)
        slots += [blocks[-1][p // here.block] * here.block + p % here.block for p in places]
        for first in range(0, count, queries):
            tiles.append([number, at + first, min(queries, count - first), start + first])
        at += count
    q, k, v = (sampled(at, h, D, seed=5).to(dtype) for h in (HEADS, KV_HEADS, 2 * KV_HEADS))
    v = v[:, KV_HEADS:]  # rows with gaps
    keys, values = here.keys[0].cuda(), here.values[0].cuda()
    scores = Scores(q.shape[-1] ** -0.5)
    wanted = StepAttention(here, blocks, starts, counts, None)(0, q, k, v, scores)
    width = max(map(len, blocks))
    numbers = (slots, tiles, [row + [0] * (width - len(row)) for row in blocks])
    slots, tiles, tables = (torch.tensor(x, dtype=torch.int32).cuda() for x in numbers)
    kernels = triton_kernels()
    kernels.write(k.cuda(), v.cuda(), keys, values, slots)
    kernels.write(k.cuda(), v.cuda(), keys, values, torch.full_like(slots, -1))  # not written
    assert torch.equal(keys.cpu(), here.keys[0]) and torch.equal(values.cpu(), here.values[0])
    found = kernels.attend(
        q.cuda(), keys, values, tables, tiles, queries, q.shape[-1] ** -0.5
    ).cpu()
    assert torch.allclose(
        found.float(), wanted.float(), atol=1e-5 if dtype is torch.float32 else 3e-2
    )
