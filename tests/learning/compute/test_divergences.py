"""Divergences in chunks: those of whole logits, with the same gradients."""

import copy

import pytest
import torch

from palaestra.learning.compute.divergences import CHUNK, token_divergences
from palaestra.learning.losses.kl import Divergence, divergence
from tests.learning.made import grouped

COUNT = 2 * CHUNK + 7  # no whole number of chunks


def given(network):
    g = torch.Generator().manual_seed(3)
    width, words = network.config.hidden_size, network.config.vocab_size
    hidden, teacher = 3 * torch.randn(2, COUNT, width, generator=g, dtype=torch.float64)
    targets = torch.randint(words, (COUNT,), generator=g)
    weight = torch.randn(COUNT, generator=g, dtype=torch.float64)
    return hidden.requires_grad_(), teacher, targets, weight


@pytest.mark.parametrize("direction", Divergence)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_whole_logits(direction, tied, temperature):
    teaching = grouped(tied=tied, seed=1).double()
    found = []
    for chunked in (True, False):
        network = grouped(tied=tied).double()
        hidden, teacher, targets, weight = given(network)
        if chunked:
            values, lp, entropy = token_divergences(
                network, hidden, targets, teacher, teaching.logits, temperature, direction
            )
            assert not lp.requires_grad and not entropy.requires_grad
        else:
            scores = network.logits(hidden) / temperature
            values = divergence(direction, scores, teaching.logits(teacher).detach() / temperature)
            logs = scores.detach().log_softmax(1)
            lp = logs.gather(1, targets[:, None]).squeeze(1)
            entropy = -(logs.exp() * logs).sum(1)
        (values * weight).sum().backward()
        gradients = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
        found.append(
            {"values": values, "lp": lp, "entropy": entropy, "hidden": hidden.grad, **gradients}
        )
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-10, atol=1e-10)
    assert all(p.grad is None for p in teaching.parameters())


def test_logits_exist_for_one_chunk_at_a_time():
    network = grouped().double()
    hidden, teacher, targets, _ = given(network)
    most = 0

    def counted(states):
        nonlocal most
        most = max(most, len(states))
        return network.logits(states)

    student = copy.copy(network)
    token_divergences(student, hidden, targets, teacher, counted, 1.0, Divergence.FORWARD)
    assert most == CHUNK
