"""A pool of worker processes: hundreds of environments, isolated from each other.

A worker makes one call at a time, so the environment that crashes it, hangs it or breaks
its protocol is known and gets the fault. The worker is replaced, and each other
environment it hosted is restored at its next use (`worker_environment.py`). If another
process killed the worker, the fault is the infrastructure's. Environments also move to
another worker when theirs is busy with a slow call; if all are busy, one more is started.

Environments that wait (`Spec.waits`) share their worker: several of their calls are in
progress at once, and none of them moves because others wait. If the worker ends meanwhile,
each of these calls is made again alone, and what ends it again is at fault.
"""

from __future__ import annotations

import asyncio
import itertools

import psutil

from palaestra.core.errors import InputError
from palaestra.environments import registry
from palaestra.rollout.worker_environment import WorkerEnvironment
from palaestra.rollout.worker_handle import WorkerHandle

MORE = 16  # workers that a pool may add for environments whose worker is busy with a slow call


class WorkerPool:
    """`count` worker processes that host environments; use it with `async with`.

    `timeout` is the limit of one call of an environment, in seconds. `memory` is the limit of a
    worker with all its environments and child processes, in bytes (by default half of the
    machine's). A call during which it exceeds the limit is a fault of its environment; a worker
    that has grown over many calls is replaced.
    """

    def __init__(self, count: int, timeout: float = 60.0, memory: int | None = None) -> None:
        if count < 1:
            raise InputError(f"A worker pool needs at least one worker, not {count}.")
        memory = memory or psutil.virtual_memory().total // 2
        self._handles = [WorkerHandle(timeout, memory) for _ in range(count)]
        self._memory = memory
        self._timeout, self._most = timeout, count + MORE
        self._open = True
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> WorkerPool:
        """Start the workers.

        Raises:
            WorkersUnavailable: a worker does not start; the message says why.
        """
        try:
            await asyncio.gather(*(handle.run(handle.ready) for handle in self._handles))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def make(self, environment_id: str) -> WorkerEnvironment:
        """Make a new environment in the least loaded worker.

        Raises:
            InputError: the environment cannot be made (unknown name, missing package …).
            EnvironmentFault: making it raised, crashed or hung.
            InfrastructureFault: another process killed the workers in which it was made.
            WorkersUnavailable: a worker does not start; the message says why.
        """
        handle = min(self._handles, key=lambda handle: handle.load)
        environment = WorkerEnvironment(
            environment_id,
            handle,
            next(self._numbers),
            self._other_worker,
            waits=_waits(environment_id),
        )
        try:
            await environment.open()
        except BaseException:
            environment.discard()
            raise
        return environment

    async def close(self) -> None:
        """End all workers; none remains, not even as a zombie."""
        self._open = False
        await asyncio.gather(*(handle.close() for handle in self._handles))

    def _other_worker(self) -> WorkerHandle | None:
        """Return the least loaded worker without a slow call, or a new one; None: neither."""
        quick = [handle for handle in self._handles if not handle.lock.slow]
        if not quick and self._open and len(self._handles) < self._most:
            quick = [WorkerHandle(self._timeout, self._memory)]
            self._handles += quick
        return min(quick, key=lambda handle: handle.load, default=None)

    def max_rss_bytes(self) -> int:
        """Return the sum of the workers' peak resident memory in bytes, as far as is known."""
        return sum(handle.peak_bytes() for handle in self._handles)

    @property
    def restarts(self) -> int:
        """The number of times a worker was replaced."""
        return sum(max(0, handle.incarnations - 1) for handle in self._handles)


def _waits(environment_id: str) -> bool:
    """Return whether an environment waits; False if that is not known: making it says why."""
    try:
        return registry.spec(environment_id).waits
    except (Exception, SystemExit):
        return False
