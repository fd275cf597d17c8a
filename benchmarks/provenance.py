"""Where a figure comes from: the machine and the commit it was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> str:
    """Cores, processor, memory in GiB and graphics processors; no name of the host."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    parts = [f"{cores()} cores", _processor(), f"{memory:.0f} GiB", *_graphics()]
    return ", ".join(parts)


def commit() -> str:
    """The commit of the checkout; ends in "+" where files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain") else "")


def _processor() -> str:
    return _after("model name", Path("/proc/cpuinfo")) or platform.processor() or "unknown"


def _graphics() -> list[str]:
    """The driver's own list, so that torch need not be loaded to ask."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [model for model in (_after("Model", file) for file in files) if model]


def _after(label: str, file: Path) -> str:
    """The text behind "label :" in the first such line of a file; empty without one."""
    if not file.is_file():
        return ""
    for line in file.read_text(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == label:
            return value.strip()
    return ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
