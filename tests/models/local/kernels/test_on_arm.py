"""On 64-bit ARM, the C kernels compile and give the numbers that they give here."""

import subprocess

import pytest
import torch

from palaestra.models.local.kernels import (
    causal_attention,
    fused,
    layers,
    matmul,
    packed_matmul,
    paged_attention,
    weight_packing,
)
from palaestra.models.local.kernels.c_build import flags_of
from tests.models.local.kernels.on_arm import AVAILABLE, COMPILER, run_here, run_on_arm

pytestmark = [
    pytest.mark.skipif(not AVAILABLE, reason="no cross compiler for 64-bit ARM, or no qemu-user"),
    pytest.mark.skipif(fused.load(torch.float32) is None, reason="no C compiler with OpenMP"),
]

CPUS = ["cortex-a72", "neoverse-v1"]  # NEON only; also SVE and bf16
HEAD_DIM, SHARE, BLOCK, KV_HEADS = 32, 3, 4, 2
ROWS, WIDTH, WORDS = 5, 40, 300


def sampled(*shape, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(*shape, generator=g)).to(dtype)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


def fused_calls(kind):
    """Each function of fused.c with its arguments."""
    x, grad = sampled(ROWS, WIDTH, dtype=kind), sampled(ROWS, WIDTH, seed=1, dtype=kind)
    weight, scale = sampled(WIDTH, seed=2, dtype=kind), sampled(ROWS, seed=3).abs() / 9
    half, inner = WIDTH // 4, WIDTH // 2
    angles = torch.outer(torch.arange(ROWS), 0.9 ** torch.arange(half)).to(torch.float32)
    logits, targets = sampled(ROWS, WORDS, dtype=kind), torch.arange(ROWS) * 7
    lp, nats, norm = zeros(ROWS), sampled(ROWS, seed=4).abs(), torch.full((ROWS,), 9.0)
    y, size = zeros(ROWS, WIDTH, dtype=kind), (ROWS, WIDTH)
    turned = (*(x, WIDTH, angles.cos().to(kind), angles.sin().to(kind), 1.0), y, WIDTH, ROWS)
    kept = [torch.tensor([0, 0.5, 1, 1, 2]), torch.tensor([0.1, 0.3, 0.5, 0.7, 0.99])]
    return {
        "rms_norm": (x, weight, y, zeros(ROWS), *size, 1e-5),
        "rms_norm_backward": (grad, x, weight, scale, y, zeros(2, WIDTH), *size, 2),
        "gated": (x, zeros(ROWS, inner, dtype=kind), ROWS, inner),
        "gated_backward": (sampled(ROWS, inner, dtype=kind), x, y, ROWS, inner),
        "rotate": (*turned, 2, half),
        "causal_softmax": (x, ROWS, WIDTH, ROWS),
        "token_logprobs": (logits, targets, 0.7, lp, nats, norm, ROWS, WORDS),
        "draw": (logits, *kept, zeros(ROWS, dtype=torch.int64), lp, nats, ROWS, WORDS),
        "token_logprobs_backward": (
            *(logits, targets, 0.7, norm, nats, lp + 1, nats / 2, ROWS, WORDS),
        ),
        "widen_add": (zeros(ROWS, WIDTH) + 1, x, ROWS * WIDTH),
    }


def attention_calls(kind):
    """Each function of paged_attention.c with its arguments."""
    lengths = torch.tensor([1, 4, 9, 17], dtype=torch.int32)
    blocks = 5 * len(lengths)
    heads = KV_HEADS * SHARE
    q = sampled(len(lengths), heads, HEAD_DIM, dtype=kind)
    keys, values = (sampled(blocks, KV_HEADS, BLOCK, HEAD_DIM, seed=n, dtype=kind) for n in (1, 2))
    tables = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).int()
    rows = torch.arange(len(lengths), dtype=torch.int32)
    out, reach = torch.zeros_like(q), 21
    scores = sampled(len(lengths), heads, 3, reach, dtype=kind)
    return {
        "attend": (
            *(q, heads * HEAD_DIM, keys, values, out, tables, 5, rows, lengths),
            *(len(lengths), KV_HEADS, HEAD_DIM**-0.5),
        ),
        "softmax_seen": (scores, lengths, len(lengths), heads, 3, reach),
    }


SHAPE = [f"-DHEAD_DIM={HEAD_DIM}", f"-DSHARE={SHARE}", f"-DBLOCK={BLOCK}"]
FILES = {
    "fused": (fused.SOURCE, [], fused_calls),
    "paged_attention": (paged_attention.SOURCE, SHAPE, attention_calls),
}
CALLS = [(file, name) for file, (*_, calls) in FILES.items() for name in calls(torch.float32)]


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("file", "function"), CALLS)
def test_a_function_gives_what_it_gives_here(file, function, kind, cpu, tmp_path):
    source, flags, calls = FILES[file]
    flags = [*flags, "-DBF16"] if kind == torch.bfloat16 else flags
    arguments = calls(kind)[function]
    found = run_on_arm(source, flags, function, arguments, tmp_path, cpu)
    wanted = run_here(source, flags, function, arguments)
    before = [x for x in arguments if isinstance(x, torch.Tensor)]
    assert any(not torch.equal(a, b) for a, b in zip(before, wanted, strict=True))
    for ours, theirs in zip(found, wanted, strict=True):
        # sums run in another order; a number may fall on the other side of a rounding
        close = {"rtol": 2**-7, "atol": 2**-7} if ours.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(ours, theirs, **(close or {"rtol": 1e-5, "atol": 2e-5}))


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        (matmul, []),
        (packed_matmul, []),
        (weight_packing, []),
        (layers, []),
        (layers, ["-DBF16"]),
        (fused, ["-DBF16"]),
        (paged_attention, [*SHAPE, "-DBF16"]),
        (causal_attention, [f"-DHEAD_DIM={HEAD_DIM}"]),
    ],
)
def test_every_kernel_compiles_with_the_flags_for_arm(module, flags, tmp_path):
    ours = [flag for flag in flags_of("aarch64") if flag != "-mcpu=native"]  # of another machine
    command = [COMPILER, *ours, "-mcpu=cortex-a72", *flags, "-o", tmp_path / "made.so"]
    subprocess.run([*map(str, command), str(module.SOURCE), "-lm"], check=True)
