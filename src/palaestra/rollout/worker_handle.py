"""A worker handle: the parent's side of one worker process, which is restarted when it ends.

A caller has exclusive access to the process, or shares it with others whose environments wait
(`Spec.waits`). A crash, a broken frame or too much memory belongs to the call in progress. If
several were in progress, each is `Interrupted`: made again alone, a call shows whether it was the
one. If another process ended or stopped the worker, no environment is at fault.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palaestra.core.budget import ran
from palaestra.core.errors import (
    EnvironmentFault,
    InfrastructureFault,
    SharedFault,
    WorkersUnavailable,
)
from palaestra.rollout import worker
from palaestra.rollout.deadline import Deadline
from palaestra.rollout.fair_lock import FairLock
from palaestra.rollout.guarded_environment import shortened
from palaestra.rollout.processes import (
    family_bytes,
    is_ending,
    is_stopped,
    peak_bytes,
    processor_seconds,
    resident_bytes,
)
from palaestra.rollout.wire import Wire
from palaestra.rollout.worker_end import End
from palaestra.rollout.worker_process import WorkerProcess

T = TypeVar("T")

START_SECONDS = 120.0  # a worker that is not ready by then cannot start
BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before another attempt to start a worker
EXIT_GRACE = 1.0  # seconds for a process whose pipe has closed to exit by itself

POLL = 0.05  # seconds between checks of a call in progress
SLOW_POLLS = 5  # checks after which a call that waits (for a program, the network …) is slow
LONG_POLLS = 100  # checks after which a call that computes is slow
MEMORY_CHECK = 1.0  # seconds between memory checks of a worker that answers quickly
SHARING = 8  # calls of environments that wait, in progress at once in one worker


class Interrupted(Exception):
    """The process ended during several calls, so which of them ended it is not known."""


class WorkerHandle:
    """One worker of the pool: a child process, restarted on demand after its end.

    All methods except `run`, `later`, `close` and `peak_bytes` require access by `run`.
    """

    def __init__(self, timeout: float, memory: int) -> None:
        self.load = 0  # the number of open environments
        self.incarnations = 0  # the number of processes started so far
        self.ends: list[End] = []  # of these processes, in order
        self._timeout, self._memory = timeout, memory
        self._memory_checked = 0.0  # the time of the last memory check
        # the last contact: wall-clock time, and `ran()` of this process
        self._last_contact = (0.0, 0.0)
        self.lock = FairLock(SHARING)
        self._process: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._peak = 0

    async def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        may_leave: bool = False,
        shared: bool = False,
    ) -> T:
        """Run `work` with access to the worker: exclusive, or shared with others that share it.

        A caller cancelled while it waits has sent nothing. Once started, `work` continues
        without its caller and keeps the worker, so its state is known in the end.

        Raises:
            Slow: the call in progress is slow, and the caller may leave.
            Interrupted: access was shared, and the process ended.
        """
        await self.lock.acquire(may_leave, shared)
        task = self.later(work())
        task.add_done_callback(lambda _: self.lock.release())
        return await asyncio.shield(task)

    def later(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine independently of the caller."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because the caller may be gone

    def is_running(self, incarnation: int) -> bool:
        """Return whether that incarnation of the process is running, as far as is known."""
        running = self._process is not None and self._process.ending is None
        return running and incarnation == self.incarnations

    async def ready(self) -> int:
        """Make sure that a process runs; return the number of its incarnation.

        Raises:
            InfrastructureFault: the pool is closed.
            WorkersUnavailable: it does not start after all retries.
        """
        self._check_open()
        for _ in range(2):  # rounds of the event loop, in which an earlier end is noticed
            await asyncio.sleep(0)
        async with self._starting:
            if self._process is not None and self._process.ended:
                await self._terminate(self._process, EXIT_GRACE)
            for pause in BACK_OFF if self._process is None else ():
                if await self._start() is None:
                    break
                await asyncio.sleep(pause)  # the missing resource may be available by then
                self._check_open()
            if self._process is None and (reason := await self._start()) is not None:
                raise WorkersUnavailable(
                    f"A worker process does not start: {len(BACK_OFF) + 1} times it ended before "
                    f"it was ready (the last time: {reason}). Free memory if it was killed, or fix "
                    "the error above, and try again."
                )
            return self.incarnations

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureFault("workers", "the worker pool is closed")

    async def _start(self) -> str | None:
        """Start a process; return the reason why it is not ready, None if it is."""
        try:
            process = self._process = await WorkerProcess.start(self._timeout)
        except OSError as error:
            return str(error)
        deadline = Deadline(START_SECONDS, process.pid)
        while not process.ready.done() and deadline.left() > 0:
            await asyncio.wait({process.ready}, timeout=POLL)
        started = process.ready.done() and process.ready.exception() is None
        if not started:
            end = await self._terminate(process, EXIT_GRACE if process.ready.done() else 0.0)
            lines = process.stderr.decode(errors="replace").strip().splitlines()
            return f"{end}, {shortened(lines[-1], 200)}" if lines else str(end)
        process.finish(0)
        self.incarnations, self._last_contact = self.incarnations + 1, (time.monotonic(), ran())
        return None

    async def exchange(
        self, request: worker.Request, wire: Wire[T], label: str, *, waits: bool = False
    ) -> T:
        """Send one request and return the answer; terminate a broken worker.

        Raises:
            EnvironmentFault: the environment crashed, hung, returned malformed data, raised, or
                exceeded its memory limit.
            InfrastructureFault: another process killed or stopped the worker.
            Interrupted: its end may be the fault of another call in progress.
            InputError: raised by the environment, as it was.
        """
        process, what = self._process, f"{label}: {request.verb}"
        if process is None or process.ending is not None:
            raise Interrupted  # since this caller made sure that it runs
        if not process.calls:
            process.stderr = b""
        self._last_contact = (time.monotonic(), ran())
        number, reply = process.send(request)
        try:
            taken = await self._watch(reply, process, waits)
            if taken > self._memory:
                await self._terminate(process)
                detail = f"{what} took {_gib(taken)} of memory; {_gib(self._memory)} are allowed"
                raise _of_one(process, EnvironmentFault("memory", detail))
            if not reply.done():
                # Let it print its stacks to stderr. Then wait once more, in case this process
                # was too busy to read the reply.
                process.print_stacks()
                await asyncio.wait({reply}, timeout=0.2)
            if not reply.done() and process.status is not None:
                raise EOFError  # a process that it started holds its pipe open
            if not reply.done():
                stopped = is_stopped(process.pid)
                await self._terminate(process)
                detail = f"{what} gave no answer within {self._timeout:g} s{_note(process)}"
                if stopped:
                    detail = f"{what} gave no answer, since its process was stopped from outside"
                    raise InfrastructureFault("workers", detail)
                raise EnvironmentFault("hang", detail)
            answer = reply.result()
            await self._check_memory(process)
            return _parsed(answer, wire)
        except (OSError, EOFError) as error:
            end = await self._terminate(process, EXIT_GRACE)
            if end.from_outside:
                detail = f"{what} lost its process from outside ({end})"
                raise InfrastructureFault("workers", detail) from error
            detail = f"{what} ended its process ({end}){_note(process)}"
            raise _of_one(process, EnvironmentFault("crash", detail)) from error
        except ValueError as error:
            await self._terminate(process)
            detail = f"{what} broke the protocol of its process: {error}"
            raise _of_one(process, EnvironmentFault("rubbish", shortened(detail))) from error
        except SharedFault as fault:
            await self._terminate(process)
            raise _of_one(process, fault) from fault
        finally:
            process.finish(number)

    async def _watch(
        self, reply: asyncio.Future[bytes], process: WorkerProcess, waits: bool
    ) -> int:
        """Wait for an answer until the timeout; mark the call as slow if it is.

        Return early if the process ends or exceeds its memory limit. Return its memory in bytes
        at the last check, 0 if there was none.

        Checks are counted, not seconds: while this process is busy, no call is slow.
        """
        deadline = Deadline(self._timeout, process.pid)
        polls, since, used, taken, left = 0, 0.0, 0.0, 0, self._timeout
        while left > 0:
            await asyncio.wait({reply}, timeout=min(POLL, left))
            if reply.done() or process.status is not None:
                return taken
            polls += 1
            left, taken = deadline.left(), resident_bytes(process.pid)
            if taken > self._memory:
                return taken
            if waits:
                if polls >= SLOW_POLLS and self.lock.shared:  # slow for those that do not wait
                    self.lock.mark_slow()
            elif polls % SLOW_POLLS == 1:
                since, used = time.monotonic(), processor_seconds(process.pid)
            elif polls % SLOW_POLLS == 0:
                computed = processor_seconds(process.pid) - used
                if polls >= LONG_POLLS or computed < 0.5 * (time.monotonic() - since):
                    self.lock.mark_slow()
        return taken

    async def _check_memory(self, process: WorkerProcess) -> None:
        """Terminate a worker that has grown too large over many calls, without a fault.

        Its environments are restored by replay, as after a crash of one of them.
        """
        if time.monotonic() - self._memory_checked < MEMORY_CHECK:
            return
        self._memory_checked = time.monotonic()
        if family_bytes(process.pid, self._memory) > self._memory:
            await self._terminate(process)

    async def close(self) -> None:
        """End the process: first close its input, so that environments clean up; then kill it."""
        self._closed = True
        if self._process is not None:
            await self._process.close_input(worker.GRACE + 0.5)
        if self._process is not None:
            await self._process.kill()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            await self._terminate(self._process)

    async def _terminate(self, process: WorkerProcess, grace: float = 0.0) -> End:
        """Kill a process and all that it started, once; return how it ended.

        A process that is about to exit by itself gets `grace` seconds.
        """
        if process.ending is None:
            process.together = len(process.calls)
            process.ending = asyncio.create_task(self._end(process, grace))
        return await asyncio.shield(process.ending)

    async def _end(self, process: WorkerProcess, grace: float) -> End:
        self._peak = max(self._peak, peak_bytes(process.pid))
        until = ran() + grace
        while process.status is None and ran() < until:  # its pipes may stay open
            await asyncio.sleep(POLL / 10)
        ours = self._closed or (process.status is None and not is_ending(process.pid))
        await process.kill()
        paused = time.monotonic() - self._last_contact[0] - (ran() - self._last_contact[1])
        end = End(process.status, ours, paused)
        if self.incarnations > len(self.ends):
            self.ends.append(end)
        self._process = None
        return end

    def peak_bytes(self) -> int:
        """Return the peak resident memory of this worker's processes, in bytes."""
        if self._process is not None:
            self._peak = max(self._peak, peak_bytes(self._process.pid))
        return self._peak


def _parsed(body: bytes, wire: Wire[T]) -> T:
    """Return the answer in a reply, or raise the error in it; ValueError for anything else."""
    kind, data = body[:1], body[1:]
    if kind in (worker.FAULT, worker.SHARED_FAULT):
        fault = SharedFault if kind == worker.SHARED_FAULT else EnvironmentFault
        raise fault(*worker.FAULTS.validate_json(data, strict=True))
    if kind == worker.ERROR:
        raise worker.PROBLEM.validate_json(data, strict=True).error()
    if kind != worker.ANSWER:
        raise ValueError(f"a reply of unknown kind {kind!r}")
    return wire.load(data)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _of_one(process: WorkerProcess, fault: EnvironmentFault) -> Exception:
    """Return the fault if it is certainly that of the only call; else `Interrupted`."""
    return fault if process.together == 1 else Interrupted()


def _note(process: WorkerProcess) -> str:
    text = process.stderr.decode(errors="replace").strip()
    return f"; the end of its stderr:\n{text}" if text else ""
