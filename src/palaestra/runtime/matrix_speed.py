"""The speed of matrix products on this machine, by which estimates of time are scaled."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ROWS, INNER, COLUMNS = 512, 576, 1536  # a feed-forward layer of SmolLM2-135M
SECONDS = 0.05  # of measuring


@cache
def matrix_speed(dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations per second of products in that number format.

    It is the best of several repetitions, with as many threads as torch has now.
    """
    import torch

    left = torch.ones(ROWS, INNER, dtype=dtype, device=device)
    right = torch.ones(INNER, COLUMNS, dtype=dtype, device=device)

    def product() -> float:
        started = time.perf_counter()
        (left @ right)[0, 0].item()  # waits for a device
        return time.perf_counter() - started

    product()  # the first one prepares
    end, best = time.perf_counter() + SECONDS, product()
    while time.perf_counter() < end:
        best = min(best, product())
    return 2 * ROWS * INNER * COLUMNS / best
