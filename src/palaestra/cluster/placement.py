"""Who goes where: how many processes the machines of a cluster have room for, and what lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MACHINE_GONE = "its machine is gone"  # the cause of an end that Ray reports so
WORKER_BYTES = 200 * 2**20  # most memory of a worker, without its environments


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of process: what it runs, how many there should be, and what each reserves."""

    name: str  # such as "worker"
    key: str  # of the recipe, which says how many there should be
    module: str  # whose function `serve` it runs
    work: str  # what it works on, such as "sessions"
    least: int  # before work begins
    most: int  # where there is room
    cpus: float  # processors of each
    gpus: float = 0.0
    note: str = ""  # about the memory of each
    apart: bool = False  # one a machine, and none on the driver's

    @property
    def plural(self) -> str:
        """Return the name of several."""
        return self.key.rpartition(".")[2]

    @property
    def each(self) -> str:
        """Return what one of them reserves, as text."""
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster, with what it offers in all."""

    address: str
    cpus: float
    gpus: float = 0.0
    here: bool = False  # whether it is the driver's

    @property
    def offer(self) -> str:
        """Return what it offers, as text."""
        return f"{self.cpus:g} CPU" + (f", {self.gpus:g} GPU" if self.gpus else "")


def place(machines: Sequence[Machine], kinds: Sequence[Kind]) -> list[list[int]]:
    """Return for each machine how many processes of each kind go there; earlier kinds go first."""
    left = [kind.most for kind in kinds]
    found: list[list[int]] = []
    for machine in machines:
        cpus, gpus, counts = machine.cpus, machine.gpus, [0] * len(kinds)
        for number, kind in enumerate(kinds):
            fit = min(left[number], _fitting(cpus, kind.cpus), _fitting(gpus, kind.gpus))
            if kind.apart:
                fit = min(fit, 0 if machine.here else 1)
            counts[number], left[number] = fit, left[number] - fit
            cpus, gpus = cpus - fit * kind.cpus, gpus - fit * kind.gpus
        found.append(counts)
    return found


def room(machines: Sequence[Machine], kinds: Sequence[Kind], kind: Kind) -> int:
    """Return how many processes of a kind, `most` or fewer, fit beside those of earlier kinds."""
    return sum(counts[kinds.index(kind)] for counts in place(machines, kinds))


def lack(machines: Sequence[Machine], kinds: Sequence[Kind], kind: Kind) -> str:
    """Return, as a sentence, why there are fewer processes of a kind than the run needs."""
    if too_small := shortage(machines, kinds, kind):
        return (
            f"{too_small}; the run waits until machines join, or stop it and lower {kind.key} or "
            "what each reserves"
        )
    return f"{_asked(kind)}, and others use the cluster's; the run waits until they are free"


def shortage(machines: Sequence[Machine], kinds: Sequence[Kind], kind: Kind) -> str | None:
    """Return why the machines are too few or too small for a kind; None: they are not."""
    fit = room(machines, kinds, kind)
    if fit >= kind.least:
        return None
    offered = ", ".join(f"{one.address} has {one.offer}" for one in machines) or "no machines"
    apart = "one a machine and none on this one, " if kind.apart else ""
    return f"{_asked(kind)}, {apart}and the cluster has room for {fit} ({offered})"


def _asked(kind: Kind) -> str:
    each = f" of {kind.each} each" if kind.cpus or kind.gpus else ""
    return f"{kind.key} asks for at least {kind.least}{each}"


def plan(machines: Sequence[Machine], kinds: Sequence[Kind], driver: str) -> list[str]:
    """Return lines that say what runs where, and what does not fit.

    Args:
        machines: of the cluster.
        kinds: of processes; earlier ones go first.
        driver: what this process does.
    """
    lines = [f"this process: {driver}"]
    placed = place(machines, kinds)
    for machine, counts in zip(machines, placed, strict=True):
        parts = [_some(n, kind) for n, kind in zip(counts, kinds, strict=True)]
        lines.append(f"{machine.address} ({machine.offer}): {', '.join(parts)}")
    for number, kind in enumerate(kinds):
        fit = sum(counts[number] for counts in placed)
        if fit < kind.least:
            lines.append(f"does not fit: {lack(machines, kinds, kind)}")
        elif fit < kind.most:
            lines.append(
                f"{kind.most - fit} of at most {kind.most} {kind.plural} do not fit; they start "
                "where machines join"
            )
    return lines


def _some(count: int, kind: Kind) -> str:
    return f"{count} {kind.plural}" + (f" ({kind.note})" if count and kind.note else "")


def _fitting(offered: float, each: float) -> int:
    return int(offered / each + 1e-9) if each else 2**31
