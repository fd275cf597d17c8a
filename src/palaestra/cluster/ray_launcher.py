"""Processes on Ray: which machine runs which process is Ray's decision, and only that.

The only module that knows Ray. A process is an actor that needs some processors; what it does
goes over its own connections to the driver, where an end is noticed at once (Ray itself notices a
lost machine after 15 s, and a frozen process after 65 s).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from palaestra.cluster.placement import MACHINE_GONE, Kind, Machine, lack, room
from palaestra.cluster.worker_messages import Call
from palaestra.core.errors import InputError, MissingPackage

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    ray = NodeAffinitySchedulingStrategy = None


KNOCKING = 5.0  # seconds for a cluster's address to accept a connection
FREEING = 0.2  # seconds between looks for a machine of its own
HEADLESS = (
    15.0  # seconds without the cluster's head until the run stops; after 60, Ray would end it
)


class RayLauncher:
    """A connection to a Ray cluster, on which it starts processes."""

    def __init__(self, address: str | None, kinds: Sequence[Kind]) -> None:
        """Connect.

        Args:
            address: of the cluster; None: the variable RAY_ADDRESS, or else a Ray on this
                machine, which is started if there is none.
            kinds: of all processes that it will start; earlier ones get room first.

        Raises:
            MissingPackage: Ray is not installed.
            InputError: there is no such cluster.
        """
        check_installed()
        self._kinds = kinds
        self._actors: dict[tuple[Kind, int], Any] = {}
        self._machines: dict[tuple[Kind, int], str] = {}  # of the processes, by Ray's names
        self._headless = False
        self._connected = not ray.is_initialized()
        if self._connected:
            connect(address)
        self.host: str = ray.util.get_node_ip_address()
        self._here: str = ray.get_runtime_context().get_node_id()
        self._head: str = ray.get_runtime_context().gcs_address

    def room(self, kind: Kind) -> int:
        self._check_head()
        return room(self.machines(), self._kinds, kind)

    async def start(self, kind: Kind, call: Call) -> str:
        needs: dict[str, Any] = {"num_cpus": kind.cpus, "num_gpus": kind.gpus}
        if kind.apart:
            while not (free := await asyncio.to_thread(self._apart, kind)):
                await asyncio.sleep(FREEING)
            needs["scheduling_strategy"] = NodeAffinitySchedulingStrategy(free[0], soft=False)
        actor = ray.remote(max_restarts=0, **needs)(_Actor).remote()
        self._actors[kind, call.birth] = actor
        try:
            self._machines[kind, call.birth] = await actor.machine.remote()
            named = actor.serve.options(name=f"palaestra {kind.name} {call.birth}")
            await named.remote(kind.module, call)
        except ray.exceptions.RayError as error:
            return _cause(error)
        return "it ended by itself"

    def kill(self, kind: Kind, birth: int) -> None:
        if (kind, birth) in self._actors and not self._headless and ray.is_initialized():
            ray.kill(self._actors.pop((kind, birth)))

    def lack(self, kind: Kind) -> str:
        return lack(self.machines(), self._kinds, kind)

    def leaving(self, kind: Kind) -> set[int]:
        gone = _draining()
        return {
            birth
            for (found, birth), machine in self._machines.items()
            if found == kind and machine in gone
        }

    def machines(self) -> Sequence[Machine]:
        """Return the machines of the cluster that are alive, and not about to leave."""
        return [
            Machine(
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
                here=node["NodeID"] == self._here,
            )
            for node in _nodes()
        ]

    def _apart(self, kind: Kind) -> list[str]:
        """Return the machines, by Ray's names, that have no process of a kind, nor the driver."""
        taken = {self._machines.get(one) for one in self._actors if one[0] == kind}
        found = [node["NodeID"] for node in _nodes()]
        return [one for one in found if one not in taken and one != self._here]

    def close(self, kind: Kind) -> None:
        for found, birth in list(self._actors):
            if found == kind:
                self.kill(kind, birth)

    def disconnect(self) -> None:
        """Leave the cluster; a Ray that was started for this run ends."""
        for kind in self._kinds:
            self.close(kind)
        if self._connected:
            ray.shutdown()

    def _check_head(self) -> None:
        """Raise OSError if nobody answers where the head was; Ray's own calls would not return."""
        until = time.monotonic() + HEADLESS
        while True:
            try:
                return _knock(self._head)
            except OSError as error:
                if time.monotonic() > until:
                    self._headless = True
                    raise OSError(f"the head at {self._head} does not answer: {error}") from None
                time.sleep(0.5)


class _Actor:
    """The actor of a process of any kind."""

    def machine(self) -> str:
        found: str = ray.get_runtime_context().get_node_id()
        return found

    def serve(self, module: str, call: Call) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
        importlib.import_module(module).serve(call)


def check_installed() -> None:
    """Raise MissingPackage if Ray is not installed."""
    if ray is None:
        raise MissingPackage("--on ray needs Ray; install it with: pip install 'palaestra[ray]'")


def connect(address: str | None) -> None:
    """Connect to a cluster; raises InputError if there is none at the address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone
    named = address or os.environ.get("RAY_ADDRESS")
    try:
        _knock(named)
        with _own_signals():
            ray.init(
                address=address,
                include_dashboard=None if named else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                namespace="palaestra",
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"There is no Ray cluster at '{named or 'this machine'}' ({reason}); start one with "
            "`ray start --head`, or correct --on ray=ADDRESS or RAY_ADDRESS."
        ) from error


def _nodes() -> list[dict[str, Any]]:
    gone = _draining()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in gone]


def _draining() -> Collection[str]:
    """Return the machines that `ray drain-node` or a cloud's notice announced to leave."""
    found: dict[str, int] = ray._private.state.state.get_draining_nodes()  # as Ray Train does
    return found


def _knock(address: str | None) -> None:
    """Raise OSError if nothing listens at an address, for which Ray itself waits for minutes."""
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdecimal():
        raise ValueError("write HOST:PORT, as `ray start` shows it")
    socket.create_connection((host, int(port)), KNOCKING).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handlers of signals, which Ray replaces where they can be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _cause(error: Exception) -> str:
    """Return the reason in one line."""
    if "node has died" in str(error):
        return MACHINE_GONE
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if len(lines) > 1 and "Traceback" in str(error) else " ".join(lines)[:300]
