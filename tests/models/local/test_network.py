"""The network: exactly Llama, on flat tokens of any number of sequences."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.models.local.attention import Scores
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.network import DecoderNetwork
from tests.learning.made import grouped, tiny


class Causal:
    """A simple `Attend`: one causal attention per row."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self.positions = torch.cat([torch.arange(n) for n in counts])

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        rows = zip(*(x.transpose(0, 1).split(self.counts, dim=1) for x in (q, k, v)), strict=True)
        mixed = [F.scaled_dot_product_attention(*row, is_causal=True) for row in rows]
        return torch.cat(mixed, dim=1).transpose(0, 1)


def logits(network: DecoderNetwork, rows: list[list[int]]) -> list[Tensor]:
    attend = Causal([len(row) for row in rows])
    tokens = torch.tensor([token for row in rows for token in row])
    x = network.run(network.embed(tokens), attend.positions, attend)
    return list(network.logits(x).split(attend.counts))


ROWS = [[3, 4, 5, 6, 7], [8], [9, 10, 11], [3, 4, 5, 12, 13]]


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_transformers(tmp_path, tied):
    from transformers import LlamaForCausalLM

    network = grouped(tied=tied)
    write_network(network, tmp_path)
    reference = LlamaForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        for row, ours in zip(ROWS, logits(network, ROWS), strict=True):
            theirs = reference(torch.tensor([row])).logits[0]
            assert torch.allclose(ours, theirs, atol=1e-4)


@torch.no_grad()
def test_rows_of_one_batch_do_not_see_each_other():
    network = tiny()
    for row, together in zip(ROWS, logits(network, ROWS), strict=True):
        (alone,) = logits(network, [row])
        assert torch.allclose(together, alone, atol=1e-5)


@torch.no_grad()
def test_no_token_sees_a_later_one():
    network = tiny()
    (before,), (after,) = logits(network, [[3, 4, 5, 6]]), logits(network, [[3, 4, 5, 7]])
    assert torch.allclose(before[:3], after[:3], atol=1e-6)
    assert not torch.allclose(before[3], after[3], atol=1e-2)


@torch.no_grad()
def test_the_blocks_can_be_run_in_two_parts():
    network = grouped()
    attend = Causal([4])
    x = network.embed(torch.tensor([3, 4, 5, 6]))
    whole = network.run(x, attend.positions, attend)
    half = network.run(x, attend.positions, attend, last=2)
    assert torch.equal(network.run(half, attend.positions, attend, first=2), whole)
