"""Rounding of fp32 weights to bf16 that keeps changes smaller than the distance of bf16 numbers.

A weight of 0.05 has its neighbours in bf16 at a distance of 0.0002, more than training moves most
weights. Rounded to the nearest, nearly all of them would stay where they were before training. Here
each weight has a threshold of its own, drawn once, and is rounded up if the part that is cut off
exceeds it: of weights that moved by a tenth of the distance, one in ten moves, and products with
many weights come out as they should on average (stochastic rounding; Gupta et al. 2015, "Deep
learning with limited numerical precision"). Since thresholds are fixed, equal weights are always
rounded alike, and what bf16 can hold stays as it is.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

PERIOD = 1 << 18  # thresholds, used again every so many weights; 1 MiB stays in a core's cache
AT_ONCE = 64  # periods, on a device that runs many operations side by side
CUT = 16  # bits of an fp32 number that bf16 does not have


@torch.no_grad()
def round_into(narrow: Tensor, wide: Tensor, first: int = 0) -> None:
    """Round `wide` into `narrow`, of the same shape and device.

    Args:
        narrow: rounded to as described above if it is bf16, else by torch's conversion.
        wide: fp32 if `narrow` is bf16.
        first: place of the first weight in its whole tensor, where these are a part of it; a part
            is rounded as it is within the whole.
    """
    if narrow.dtype != torch.bfloat16 or wide.dtype != torch.float32:
        narrow.copy_(wide)
        return
    found = (
        narrow
        if narrow.is_contiguous()
        else torch.empty(wide.shape, dtype=narrow.dtype, device=wide.device)
    )
    into, bits = found.view(-1), wide.contiguous().view(-1).view(torch.int32)
    thresholds = _thresholds(wide.device)
    span, start = len(thresholds), 0
    while start < len(bits):
        own = thresholds[(first + start) % span :]
        part = bits[start : start + len(own)]
        # A carry into the bits that stay rounds up: away from zero, for negative numbers too.
        moved = (part + own[: len(part)]).bitwise_and_(-1 << CUT)
        into[start : start + len(part)].copy_(moved.view(torch.float32))
        start += len(part)
    if found is not narrow:
        narrow.copy_(found)


@lru_cache
def _thresholds(device: torch.device) -> Tensor:
    """Return int32, uniform in [0, 2^16), the same numbers on every device."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(1 << CUT, (PERIOD,), generator=generator, dtype=torch.int32)
    return drawn if device.type == "cpu" else drawn.repeat(AT_ONCE).to(device)
