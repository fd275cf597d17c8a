"""The plain reference: one full forward pass of a `DecoderNetwork` over one sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from palaestra.models.local.attention import Scores
from palaestra.models.local.network import DecoderNetwork


class Past:
    """Keys and values of a sequence, as a network computed them; an empty one changes nothing."""

    def __init__(self, network: DecoderNetwork, tokens: Sequence[int]) -> None:
        self.length = len(tokens)
        self.layers: list[tuple[Tensor, Tensor]] = []
        if tokens:
            attend = Causal(None, self.layers)
            _hidden(network, tokens, attend)


class Causal:
    """Attend each token to itself and all before it; the first ones have a given past."""

    def __init__(self, past: Past | None, seen: list[tuple[Tensor, Tensor]] | None = None) -> None:
        self.past, self.seen = past, seen

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        if self.past is not None and self.past.length:
            n = self.past.length
            old_k, old_v = self.past.layers[layer]
            k, v = torch.cat([old_k, k[n:]]), torch.cat([old_v, v[n:]])
        if self.seen is not None:
            self.seen.append((k, v))
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        found = torch.einsum("qhd,khd->hqk", q, k) * scores.scale
        if scores.softcap is not None:
            found = scores.softcap * torch.tanh(found / scores.softcap)
        seen = torch.ones(len(q), len(q), dtype=torch.bool).tril()
        if scores.window is not None:
            seen = seen.triu(1 - scores.window)
        exp = found.masked_fill(~seen, -torch.inf).exp()
        total = exp.sum(dim=-1, keepdim=True)
        if scores.sinks is not None:
            total = total + scores.sinks.exp()[:, None, None]
        return torch.einsum("hqk,khd->qhd", exp / total, v)


def _hidden(network: DecoderNetwork, tokens: Sequence[int], attend: Causal) -> Tensor:
    with torch.no_grad():
        x = network.embed(torch.tensor(tokens))
        return network.run(x, torch.arange(len(tokens)), attend)


def distributions(
    network: DecoderNetwork,
    prompt: Sequence[int],
    reply: Sequence[int],
    *,
    temperature: float = 1.0,
    past: Past | None = None,
) -> Tensor:
    """Return log-probabilities [reply, vocabulary] before each token of the reply."""
    with torch.no_grad():
        x = _hidden(network, [*prompt, *reply], Causal(past))
        logits = network.logits(x[len(prompt) - 1 : -1]).double()
        return torch.log_softmax(logits / temperature, dim=-1)


def choices(
    network: DecoderNetwork, prompt: Sequence[int], reply: Sequence[int], past: Past | None = None
) -> list[int]:
    """Return the most probable token at each position of the reply."""
    return distributions(network, prompt, reply, past=past).argmax(dim=-1).tolist()


def logprobs(
    network: DecoderNetwork,
    prompt: Sequence[int],
    reply: Sequence[int],
    *,
    temperature: float = 1.0,
    past: Past | None = None,
) -> list[float]:
    """Return the log-probability of each token of the reply."""
    found = distributions(network, prompt, reply, temperature=temperature, past=past)
    return [float(row[token]) for row, token in zip(found, reply, strict=True)]


def greedy(network: DecoderNetwork, prompt: Sequence[int], count: int) -> list[int]:
    """Return a greedily decoded reply."""
    tokens = list(prompt)
    for _ in range(count):
        tokens += choices(network, tokens, [0])
    return tokens[len(prompt) :]
