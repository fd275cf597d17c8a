"""Who goes where: how many workers the machines of a cluster have room for, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MACHINE_GONE = "its machine is gone"  # the cause of an end that Ray reports so
WORKER_BYTES = 200 * 2**20  # most memory of a worker, without its environments


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster, with what it offers in all."""

    address: str
    cpus: float


def room(machines: Sequence[Machine], cpus: float) -> int:
    """Return how many workers of `cpus` processors each fit on the machines."""
    return sum(_fitting(machine, cpus) for machine in machines)


def lack(machines: Sequence[Machine], cpus: float, least: int) -> str:
    """Return, as a sentence, why there are fewer workers than the run needs."""
    fit = room(machines, cpus)
    what = f"cluster.workers asks for at least {least} of {cpus:g} CPU each"
    if fit < least:
        offered = ", ".join(f"{one.address} has {one.cpus:g}" for one in machines) or "no machines"
        return (
            f"{what}, and the cluster has room for {fit} ({offered}); the run waits until machines "
            "join, or stop it and lower cluster.workers or cluster.worker_cpus"
        )
    return f"{what}, and others use the cluster's; the run waits until they are free"


def plan(machines: Sequence[Machine], cpus: float, least: int, most: int) -> list[str]:
    """Return lines that say what runs where, and what does not fit."""
    lines = ["this process: learner, models, record"]
    left = most
    for machine in machines:
        count = min(left, _fitting(machine, cpus))
        left -= count
        size = f"{count * WORKER_BYTES / 1e9:.1f} GB without environments"
        lines.append(f"{machine.address} ({machine.cpus:g} CPU): {count} workers, {size}")
    if most - left < least:
        lines.append(f"does not fit: {lack(machines, cpus, least)}")
    elif left:
        lines.append(f"{left} of at most {most} workers do not fit; they start where machines join")
    return lines


def _fitting(machine: Machine, cpus: float) -> int:
    return int(machine.cpus / cpus + 1e-9)
