"""Feed-forward layers: gated, by any activation, one for all tokens or experts chosen by a router.

Each expert has linear layers of its own, so adapters, packed weights and the names of checkpoints
treat it as they treat any layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.models.local.architecture import Activation, Experts, NetworkConfig
from palaestra.models.local.kernels.elementwise import gated


def add_matrices(module: nn.Module, config: NetworkConfig, inner: int) -> None:
    """Give a module the weights that `feed_forward` reads."""
    width = config.hidden_size
    module.gate_up = nn.Linear(width, 2 * inner, bias=False)
    module.down = nn.Linear(inner, width, bias=False)
    # apart from the matrices, which are packed, adapted and multiplied without them
    for name, size in (("gate_up_bias", 2 * inner), ("down_bias", width)):
        bias = nn.Parameter(torch.zeros(size)) if config.mlp_bias else None
        module.register_parameter(name, bias)


def feed_forward(module: Any, x: Tensor, config: NetworkConfig) -> Tensor:
    """Run x [N, width] through a module's matrices; return [N, width]."""
    opened = activated(biased(module.gate_up(x), module.gate_up_bias), config)
    return biased(module.down(opened), module.down_bias)


def biased(product: Tensor, bias: Tensor | None) -> Tensor:
    """Add a bias in place: a product's result is not needed for its gradient."""
    return product if bias is None else product.add_(bias)


def activated(gate_up: Tensor, config: NetworkConfig) -> Tensor:
    """Return activation(first half) x second half of [N, 2 inner]."""
    if config.activation is Activation.SILU:
        return gated(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    match config.activation:
        case Activation.GELU:
            return F.gelu(gate) * up
        case Activation.GELU_TANH:
            return F.gelu(gate, approximate="tanh") * up
        case Activation.RELU:
            return F.relu(gate) * up
        case Activation.CLAMPED:
            limit, sharpness = config.clamp_limit, config.clamp_sharpness
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            return gate * torch.sigmoid(sharpness * gate) * (up + 1)


class Expert(nn.Module):
    """One expert's weights; `feed_forward` runs them."""

    def __init__(self, config: NetworkConfig, inner: int) -> None:
        super().__init__()
        add_matrices(self, config, inner)


class Mixture(nn.Module):
    """Experts and their router: each token's output is a weighted sum over its chosen experts.

    The weights are softmax probabilities. No auxiliary loss balances the experts; `expert_balance`
    tells how even their use is.
    """

    def __init__(self, config: NetworkConfig, traits: Experts) -> None:
        super().__init__()
        self.traits, self.config = traits, config
        self.router = nn.Linear(config.hidden_size, traits.count, bias=False)
        self.router_bias = nn.Parameter(torch.zeros(traits.count)) if traits.router_bias else None
        self.experts = nn.ModuleList(Expert(config, traits.inner) for _ in range(traits.count))
        self.shared = Expert(config, traits.shared) if traits.shared else None
        self.shared_gate = nn.Linear(config.hidden_size, 1, bias=False) if traits.shared else None
        self.learned = [0] * traits.count  # tokens of each expert in passes with gradients

    def forward(self, x: Tensor) -> Tensor:
        """Run x [N, width]; return [N, width]."""
        shares, chosen = self._route(x)
        order = chosen.flatten().argsort(stable=True)  # pairs of a token and an expert, by expert
        counts = self._counts(chosen.flatten())
        if torch.is_grad_enabled():
            self.learned = [sum(pair) for pair in zip(self.learned, counts, strict=True)]
        token, share = order // self.traits.chosen, shares.flatten()[order, None]
        total = torch.zeros_like(x)
        parts = zip(self.experts, token.split(counts), share.split(counts), strict=True)
        for expert, rows, weight in parts:
            # where there are gradients, an expert that no token chose gets one of zeros
            if len(rows) or torch.is_grad_enabled():
                found = feed_forward(expert, x[rows], self.config)
                total = total.index_add(0, rows, (found * weight).to(x.dtype))
        if self.shared is not None and self.shared_gate is not None:
            found = feed_forward(self.shared, x, self.config)
            total = total + torch.sigmoid(self.shared_gate(x)) * found
        return total

    def _counts(self, chosen: Tensor) -> list[int]:
        """Return how many tokens each expert gets; on "meta", where sizes are planned, evenly."""
        if chosen.is_meta:
            each, more = divmod(len(chosen), self.traits.count)
            return [each + (number < more) for number in range(self.traits.count)]
        counts: list[int] = chosen.bincount(minlength=self.traits.count).tolist()
        return counts

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of each token's experts, [N, chosen]."""
        scores = biased(self.router(x), self.router_bias)
        wide = torch.promote_types(x.dtype, torch.float32)
        shares, chosen = scores.softmax(dim=-1, dtype=wide).topk(self.traits.chosen, dim=-1)
        if self.traits.normalised:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return shares.to(x.dtype), chosen


def expert_balance(network: nn.Module) -> dict[str, float]:
    """Return how evenly the experts were used since the last call, in passes with gradients.

    Returns:
        `expert_entropy`: entropy of the tokens' distribution over a layer's experts, from 0 (one
        expert for all) to 1 (all alike), mean over layers; `expert_max`: the largest share of a
        layer's tokens that one expert got. Empty for a network without experts, or without passes.
    """
    entropies, largest = [], []
    for learned in take_counts(network):
        if not any(learned):
            continue
        total, count = sum(learned), len(learned)
        shares = [number / total for number in learned if number]
        nats = -sum(share * math.log(share) for share in shares)
        entropies.append(nats / math.log(count) if count > 1 else 1.0)
        largest.append(max(shares))
    if not entropies:
        return {}
    return {"expert_entropy": fmean(entropies), "expert_max": max(largest)}


def take_counts(network: nn.Module) -> list[list[int]]:
    """Return how many tokens each expert of each mixture got since the last call; see `learned`."""
    mixtures = [module for module in network.modules() if isinstance(module, Mixture)]
    found = [mixture.learned for mixture in mixtures]
    for mixture in mixtures:
        mixture.learned = [0] * mixture.traits.count
    return found


def add_counts(network: nn.Module, counts: Iterable[Sequence[int]]) -> None:
    """Add what `take_counts` returned of the same network elsewhere."""
    mixtures = [module for module in network.modules() if isinstance(module, Mixture)]
    for mixture, more in zip(mixtures, counts, strict=True):
        mixture.learned = [sum(pair) for pair in zip(mixture.learned, more, strict=True)]
