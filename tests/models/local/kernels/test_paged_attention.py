"""Paged attention equals plain products, and reads blocks in place."""

import platform

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.models.local.kernels.paged_attention import native_attention

CPU = torch.device("cpu")
HEAD_DIM, SHARE, BLOCK, KV_HEADS = 32, 3, 4, 2

compiled = pytest.mark.skipif(
    native_attention(HEAD_DIM, SHARE, BLOCK, torch.float32, CPU) is None,
    reason="no C compiler with OpenMP",
)


# vectors of 512, 256 and 128 bits
MACHINES = ["", *(["-march=haswell", "-march=x86-64"] if platform.machine() == "x86_64" else [])]


def plain(q, keys, values, tables, rows, lengths, block=BLOCK):
    """Compute attention token by token, with the rounding of the tensors' dtype."""
    found = []
    for t, row, length in zip(q, rows, lengths, strict=True):
        blocks = tables[row, : -(-int(length) // block)].long()
        # [kv_heads, length, head_dim]
        k, v = (x[blocks].transpose(0, 1).flatten(1, 2)[:, :length] for x in (keys, values))
        scores = (t.view(KV_HEADS, SHARE, -1).float() @ k.float().mT) * HEAD_DIM**-0.5
        p = scores.to(q.dtype).softmax(dim=-1)
        found.append((p.float() @ v.float()).to(q.dtype).reshape(-1, HEAD_DIM))
    return torch.stack(found)


def problem(lengths, dtype, seed=0, scale=1.0, block=BLOCK):
    g = torch.Generator().manual_seed(seed)
    width = -(-max(lengths) // block) + 1
    count = width * len(lengths)
    q = torch.randn(len(lengths), (SHARE + 1) * KV_HEADS, HEAD_DIM, generator=g) * scale
    keys, values = torch.randn(2, count, KV_HEADS, block, HEAD_DIM, generator=g)
    tables = torch.randperm(count, generator=g).view(len(lengths), width).int()
    rows = torch.randint(len(lengths), (len(lengths),), generator=g).int()
    q = q.to(dtype)[:, : SHARE * KV_HEADS]  # not dense, as the heads of a joint tensor
    return q, keys.to(dtype), values.to(dtype), tables, rows, torch.tensor(lengths).int()


@compiled
@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=20),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(0, 99),
    st.sampled_from([0.1, 1.0, 10.0]),
)
def test_it_gives_what_plain_products_give(lengths, dtype, seed, scale):
    given_problem = problem(lengths, dtype, seed, scale)
    attend = native_attention(HEAD_DIM, SHARE, BLOCK, dtype, CPU)
    found, wanted = attend(*given_problem), plain(*given_problem)
    assert found.dtype == dtype
    gap = (found.float() - wanted.float()).abs().max()
    # in bf16 a score may fall on the other side of a rounding: half of 2**-8, times the score
    assert float(gap) <= (1e-5 if dtype == torch.float32 else 0.02 * max(1, scale))


@compiled
def test_in_bf16_nearly_all_results_agree_to_the_bit():
    given_problem = problem([256] * 16, torch.bfloat16)
    attend = native_attention(HEAD_DIM, SHARE, BLOCK, torch.bfloat16, CPU)
    agreed = attend(*given_problem) == plain(*given_problem)
    assert float(agreed.float().mean()) > 0.98


@compiled
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 30)), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([4, 8, 32]),
    st.sampled_from(MACHINES),
    st.integers(0, 99),
)
def test_successive_tokens_of_a_sequence_get_what_each_gets_alone(
    sequences, dtype, block, machine, seed
):
    """Some known tokens, and new ones, of each sequence: equal to the bit."""
    lengths = [start + n + 1 for start, new in sequences for n in range(new)]
    q, keys, values, tables, _, reach = problem(lengths, dtype, seed, block=block)
    rows = torch.tensor([i for i, (_, new) in enumerate(sequences) for _ in range(new)]).int()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFLAGS", machine)
        attend = native_attention(HEAD_DIM, SHARE, block, dtype, CPU)
    together = attend(q, keys, values, tables, rows, reach)
    wanted = plain(q, keys, values, tables, rows, reach, block)
    gap = (together.float() - wanted.float()).abs().max()
    assert float(gap) <= (1e-5 if dtype == torch.float32 else 0.02)
    for t in range(len(q)):
        alone = attend(q[t : t + 1], keys, values, tables, rows[t : t + 1], reach[t : t + 1])
        assert torch.equal(alone[0], together[t])


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_does_not_depend_on_its_neighbours(dtype):
    q, keys, values, tables, rows, lengths = problem([5, 60, 33], dtype)
    attend = native_attention(HEAD_DIM, SHARE, BLOCK, dtype, CPU)
    together = attend(q, keys, values, tables, rows, lengths)
    for t in range(3):
        alone = attend(q[t : t + 1], keys, values, tables, rows[t : t + 1], lengths[t : t + 1])
        assert torch.equal(alone[0], together[t])


def test_shapes_and_devices_that_it_does_not_serve_go_without():
    assert native_attention(24, SHARE, BLOCK, torch.float32, CPU) is None
    assert native_attention(HEAD_DIM, SHARE, BLOCK, torch.float16, CPU) is None
    assert native_attention(HEAD_DIM, SHARE, BLOCK, torch.float32, torch.device("meta")) is None


def test_without_a_compiler_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "/bin/false")
    assert native_attention(HEAD_DIM, SHARE, BLOCK, torch.float32, CPU) is None
