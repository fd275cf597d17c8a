"""This machine: its description, and how cores and memory are shared.

torch's threads spin while they wait: with more threads than cores, everything slows
down many times over. So threads are planned once, before torch is imported: torch gets
the cores, environment workers get one low-priority thread each, and the wait policy is
passive enough to let them run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from palaestra.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Machine:
    """The description of a machine in reports."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    torch: str  # its version; empty where it is not installed
    gpu: str = ""  # names of the devices of NVIDIA's driver; empty where there is none


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def plan_threads() -> None:
    """Set thread counts and wait policy; must run before torch is imported.

    A user's own OMP_NUM_THREADS, GOMP_SPINCOUNT or OMP_WAIT_POLICY wins.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "OMP_WAIT_POLICY" not in os.environ:
        # long enough for the gap between two matrix products, short enough for a worker
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def torch_threads() -> int:
    """Return the threads for matrix products: the user's OMP_NUM_THREADS, or one per core."""
    return int(os.environ.get("OMP_NUM_THREADS", cores()))


@dataclass(frozen=True, slots=True)
class LaunchedRank:
    """Which of several processes this one was started as, by torchrun or in its manner."""

    rank: int
    world: int  # processes in all
    local_rank: int  # among those on this machine
    local_world: int  # processes on this machine
    address: str  # HOST:PORT where all meet; rank 0 runs on HOST
    hosted: bool  # whether torchrun keeps the meeting point, else rank 0 does
    restarts: int  # of all processes by torchrun


def launched_rank() -> LaunchedRank | None:
    """Return what torchrun's environment variables say; None for a process of its own.

    Raises:
        InputError: a variable is missing, or no number.
    """
    if int(_variable("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        return None
    return LaunchedRank(
        rank=int(_variable("RANK")),
        world=int(_variable("WORLD_SIZE")),
        local_rank=int(_variable("LOCAL_RANK", "0")),
        local_world=int(_variable("LOCAL_WORLD_SIZE", "1")),
        address=f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{_variable('MASTER_PORT')}",
        hosted=os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=int(_variable("TORCHELASTIC_RESTART_COUNT", "0")),
    )


def _variable(name: str, default: str = "") -> str:
    """Return an environment variable that holds a number."""
    found = os.environ.get(name, default)
    if not found.isdecimal():
        raise InputError(
            f"{name} = '{found}' is no number, and WORLD_SIZE asks for several processes; start "
            "them with torchrun, or unset WORLD_SIZE."
        )
    return found


def describe() -> Machine:
    """Describe this machine without importing torch, which an evaluation may not need."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return Machine(
        cpu=_cpu_name(),
        cores=cores(),
        memory_bytes=_memory(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=torch,
        gpu=_gpu_names(Path("/proc/driver/nvidia/gpus")),
    )


def _gpu_names(folder: Path) -> str:
    """Return the names of the GPUs that NVIDIA's driver lists there (Linux), joined by commas."""
    names = []
    for file in sorted(folder.glob("*/information")):
        with contextlib.suppress(OSError):
            names += re.findall(r"(?m)^Model:\s*(.+?)\s*$", file.read_text("utf-8"))
    return ", ".join(names)


def peak_memory_bytes() -> int:
    """Return the peak resident size of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


RELEASE_EVERY = 8  # steps: released pages must be mapped and cleared again


def release_memory(step: int) -> None:
    """Return freed memory to the system every few steps, where the C library keeps it (glibc).

    Batches of varying shapes leave gaps in its heap: without this, a long run grows.
    """
    if step % RELEASE_EVERY:
        return
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library or system: nothing to do


def as_document() -> dict[str, str | int]:
    """Return the description of this machine as a JSON object."""
    return asdict(describe())


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
