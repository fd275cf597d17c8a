"""Log-probabilities and entropies in chunks: those of whole logits, with the same gradients."""

import pytest
import torch

from palaestra.learning.compute.logprobs import CHUNK, token_logprobs
from tests.learning.made import grouped

COUNT = CHUNK + 70  # more than a chunk, and no whole number of chunks


def whole(network, hidden, targets, temperature):
    lp = (network.logits(hidden) / temperature).log_softmax(dim=1)
    return lp.gather(1, targets[:, None]).squeeze(1), -(lp.exp() * lp).sum(dim=1)


def sampled(network, count=COUNT):
    g = torch.Generator().manual_seed(3)
    width, words = network.config.hidden_size, network.config.vocab_size
    hidden = 3 * torch.randn(count, width, generator=g, dtype=torch.float64)
    return (
        hidden.to(network.dtype).requires_grad_(),
        torch.randint(words, (count,), generator=g),
        torch.randn(2, count, generator=g, dtype=torch.float64),
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("entropy", [True, False])
def test_values_and_gradients_are_those_of_whole_logits(entropy, tied, temperature):
    found = []
    for compute in ("chunks", "whole"):
        network = grouped(tied=tied).double()
        hidden, targets, (a, b) = sampled(network)
        if compute == "chunks":
            lp, nats = token_logprobs(
                network, hidden, targets, temperature, entropy_gradient=entropy
            )
            assert nats.requires_grad == entropy
        else:
            lp, nats = whole(network, hidden, targets, temperature)
        total = (a * lp).sum()
        if entropy:
            total = total + (b * nats).sum()
        total.backward()
        gradients = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
        found.append({"lp": lp, "nats": nats, "hidden": hidden.grad, **gradients})
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    assert len(ours) == 5
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-10, atol=1e-10)


def test_a_loss_of_entropy_alone_has_its_gradient():
    network = grouped().double()
    hidden, targets, _ = sampled(network)
    _, nats = token_logprobs(network, hidden, targets, 1.0, entropy_gradient=True)
    (ours,) = torch.autograd.grad(nats.sum(), hidden)
    (theirs,) = torch.autograd.grad(whole(network, hidden, targets, 1.0)[1].sum(), hidden)
    torch.testing.assert_close(ours, theirs)


def test_the_head_learns_from_states_without_a_gradient():
    network = grouped()
    hidden, targets, _ = sampled(network, 8)
    lp, _ = token_logprobs(network, hidden.detach(), targets, 1.0, entropy_gradient=False)
    lp.sum().backward()
    assert float(network.norm.grad.norm()) > 0


def test_states_learn_under_a_frozen_head():
    network = grouped().requires_grad_(False)
    hidden, targets, _ = sampled(network, 8)
    lp, _ = token_logprobs(network, hidden, targets, 1.0, entropy_gradient=False)
    lp.sum().backward()
    assert float(hidden.grad.norm()) > 0


def test_no_token_has_no_log_probability():
    network = grouped()
    hidden, targets, _ = sampled(network, 0)
    lp, nats = token_logprobs(network, hidden, targets, 1.0, entropy_gradient=True)
    (lp.sum() + nats.sum()).backward()
    assert len(lp) == len(nats) == 0


def test_bf16_logits_are_summed_in_fp32():
    network = grouped().to(torch.bfloat16)
    hidden, targets, _ = sampled(network, 40)
    lp, nats = token_logprobs(network, hidden, targets, 1.0, entropy_gradient=False)
    logits = network.logits(hidden).double()
    every = logits.log_softmax(dim=1)
    assert lp.dtype is nats.dtype is torch.float32
    torch.testing.assert_close(lp.double(), every.gather(1, targets[:, None]).squeeze(1))
    torch.testing.assert_close(nats.double(), -(every.exp() * every).sum(dim=1))
