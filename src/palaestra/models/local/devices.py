"""The device that local models compute on, and the number format of their weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    import torch


def device(name: str) -> torch.device:
    """Return the device to compute on; `auto` is a CUDA device if there is one.

    Raises:
        InputError: `cuda` was asked for, and there is no CUDA device.
    """
    import torch

    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise InputError(
            "'cuda' is not available: torch finds no CUDA device; set model.device=cpu, or install "
            "torch with CUDA."
        )
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def precision(name: str, device: torch.device) -> torch.dtype:
    """Return the number format to compute in; `auto` depends on the device."""
    import torch

    if name == "auto":
        return torch.bfloat16 if multiplies_bf16(device) else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether the device multiplies bf16 matrices natively."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if os.environ.get("ATEN_CPU_CAPABILITY", "").lower() in ("avx2", "default"):
        return False  # the user holds torch to less than the CPU has
    flags = Path("/proc/cpuinfo")
    if not flags.is_file():
        return False  # macOS: fp32 is faster there than torch's bf16
    text = flags.read_text()
    return "avx512_bf16" in text or "amx_bf16" in text or " bf16" in text
