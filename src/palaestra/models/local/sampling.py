"""Token sampling: inverse transform sampling with one uniform number per token.

The number is a hash of (seed, position), so a reply depends only on its prompt, its seed and the
weights. The cumulative distribution over a vocabulary of tens of thousands of tokens is summed in
two steps: over stretches of it, then within the stretch that the number falls into. If compiled
functions are available, one of them does all of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.episode import derive_seed
from palaestra.models.local.kernels.fused import kernels_for

STRETCH = 256  # tokens


class Sampled(NamedTuple):
    """One token per row, each [R]."""

    tokens: Tensor
    logprobs: Tensor  # of the tokens, at the temperature (greedy: at 1)
    entropies: Tensor  # of the distributions sampled from, likewise, in nats


def uniform(seed: int, position: int) -> float:
    """Return the number in [0, 1) that selects the token at a position of a reply."""
    return derive_seed(seed, position) / 2**63


def sample(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> Sampled:
    """Sample one token per row.

    Args:
        logits: [R, vocabulary]; may be overwritten.
        temperature: [R], at least fp32; 0 is greedy.
        uniforms: [R], in [0, 1), likewise.

    Raises:
        FloatingPointError: the logits contain NaN.
    """
    kernels = kernels_for(logits)
    if kernels is not None:
        sampled = Sampled(*kernels.sample(logits.contiguous(), temperature, uniforms))
        _check(sampled.logprobs)
        return sampled
    logits = logits.to(temperature.dtype)
    greedy = temperature == 0
    first = logits.argmax(dim=1) if bool(greedy.any()) else None
    if bool((temperature != 1).any()):
        logits.div_(temperature.masked_fill(greedy, 1.0).unsqueeze(1))
    top = logits.amax(dim=1, keepdim=True)
    mass = F.pad(logits.sub_(top).exp_(), (0, -logits.shape[1] % STRETCH))
    mass = mass.view(len(mass), -1, STRETCH)
    stretches = mass.sum(dim=2)
    whole = stretches.sum(dim=1)
    _check(whole)
    entropies = whole.log() + torch.special.entr(mass).sum(dim=(1, 2)) / whole
    stretch, before = _inverse(stretches, uniforms * whole)
    inside = mass[torch.arange(len(mass), device=mass.device), stretch]
    place, _ = _inverse(inside, uniforms * whole - before)
    tokens = stretch * STRETCH + place
    if first is not None:
        tokens = torch.where(greedy, first, tokens)
    chosen = mass.flatten(1).gather(1, tokens.unsqueeze(1)).squeeze(1)
    return Sampled(tokens, (chosen / whole).log(), entropies)


def _check(numbers: Tensor) -> None:
    if bool(numbers.isnan().any()):
        raise FloatingPointError("the model's logits are not numbers: its weights have diverged")


def _inverse(mass: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first index whose cumulative mass exceeds the target, and the mass before it.

    The index always has positive mass, even if the target was rounded.
    """
    total = mass.cumsum(dim=1)
    end = total[:, -1]
    within = torch.minimum(target.clamp(min=0), torch.nextafter(end, torch.zeros_like(end)))
    place = torch.searchsorted(total, within.unsqueeze(1), right=True)
    before = F.pad(total, (1, 0)).gather(1, place)
    return place.squeeze(1), before.squeeze(1)
