"""A worker handle: the parent's side of one worker process, which is restarted when it ends.

One caller at a time has exclusive access to the process. Each reply therefore belongs to the
request before it, and a crash, a hang or a broken frame to the call in progress. If another
process ended or stopped the worker, no environment is at fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palaestra.core.budget import ran
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, WorkersUnavailable
from palaestra.rollout import worker
from palaestra.rollout.deadline import Deadline
from palaestra.rollout.fair_lock import FairLock
from palaestra.rollout.guarded_environment import MAX_BYTES, shortened
from palaestra.rollout.processes import (
    is_stopped,
    peak_bytes,
    processor_seconds,
    resident_bytes,
)
from palaestra.rollout.wire import Wire
from palaestra.rollout.worker_end import End

T = TypeVar("T")

START_SECONDS = 120.0  # a worker that is not ready by then cannot start
BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before another attempt to start a worker
STDERR_TAIL = 4096  # bytes of a worker's stderr that are kept for messages
EXIT_GRACE = 1.0  # seconds for a process whose pipe has closed to exit by itself

POLL = 0.05  # seconds between checks of a call in progress
SLOW_POLLS = 5  # checks after which a call that waits (for a program, the network …) is slow
LONG_POLLS = 100  # checks after which a call that computes is slow
MEMORY_CHECK = 1.0  # seconds between memory checks of a worker that answers quickly


class WorkerHandle:
    """One worker of the pool: a child process, restarted on demand after its end.

    All methods except `exclusive`, `later`, `close` and `peak_bytes` require exclusive access.
    """

    def __init__(self, timeout: float, memory: int) -> None:
        self.load = 0  # the number of open environments
        self.incarnations = 0  # the number of processes started so far
        self.ends: list[End] = []  # of these processes, in order
        self._timeout, self._memory = timeout, memory
        self._memory_checked = 0.0  # the time of the last memory check
        self._last_contact = (
            0.0,
            0.0,
        )  # the last contact: wall-clock time, and `ran()` of this process
        self.lock = FairLock()
        self._process: Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._stderr = b""  # the end of the process's stderr
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._peak = 0

    async def exclusive(
        self, work: Callable[[], Coroutine[Any, Any, T]], *, may_leave: bool = False
    ) -> T:
        """Run `work` with exclusive access to the worker.

        A caller cancelled while it waits has sent nothing. Once started, `work` continues
        without its caller and keeps the worker, so requests and replies stay paired.

        Raises:
            Slow: the call in progress is slow, and the caller may leave.
        """
        await self.lock.acquire(may_leave)
        task = self._keep(work())
        task.add_done_callback(lambda _: self.lock.release())
        return await asyncio.shield(task)

    def later(self, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Queue `work` for exclusive access, independent of the caller."""
        return self._keep(self.exclusive(work))

    def _keep(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
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
        return self._process is not None and incarnation == self.incarnations

    async def ready(self) -> int:
        """Make sure that a process runs; return the number of its incarnation.

        Raises:
            InfrastructureFault: the pool is closed.
            WorkersUnavailable: it does not start after all retries.
        """
        self._check_open()
        for _ in range(2):  # rounds of the event loop, in which an earlier end is noticed
            await asyncio.sleep(0)
        if self._process is not None and _ended(self._process):
            await self._terminate(EXIT_GRACE)
        for pause in BACK_OFF if self._process is None else ():
            if await self._start() is None:
                break
            await asyncio.sleep(pause)  # the missing resource may be available by then
            self._check_open()
        if self._process is None and (reason := await self._start()) is not None:
            raise WorkersUnavailable(
                f"A worker process does not start: {len(BACK_OFF) + 1} times it ended before it "
                f"was ready (the last time: {reason}). Free memory if it was killed, or fix the "
                "error above, and try again."
            )
        return self.incarnations

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureFault("workers", "the worker pool is closed")

    async def _start(self) -> str | None:
        """Start a process; return the reason why it is not ready, None if it is."""
        command = [sys.executable, "-P", "-m", worker.__name__, str(self._timeout)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=2**20,
                env=_worker_variables(),
                start_new_session=True,  # its own process group, so that its children end with it
            )
        except OSError as error:
            return str(error)
        self._process, self._stderr = process, b""
        self._listener = asyncio.create_task(self._listen(process))
        receipt = self._keep(_receive(process))
        deadline = Deadline(START_SECONDS, process.pid)
        try:
            while not receipt.done() and deadline.left() > 0:
                await asyncio.wait({receipt}, timeout=POLL)
            if not receipt.done():
                raise TimeoutError
            receipt.result()
        except (OSError, EOFError, ValueError):
            end = await self._terminate(EXIT_GRACE if receipt.done() else 0.0)
            lines = self._stderr.decode(errors="replace").strip().splitlines()
            return f"{end}, {shortened(lines[-1], 200)}" if lines else str(end)
        finally:
            receipt.cancel()
        self.incarnations, self._last_contact = self.incarnations + 1, (time.monotonic(), ran())
        return None

    async def exchange(self, request: worker.Request, wire: Wire[T], label: str) -> T:
        """Send one request and return the answer; terminate a broken worker.

        Raises:
            EnvironmentFault: the environment crashed, hung, returned malformed data, raised, or
                exceeded its memory limit.
            InfrastructureFault: another process killed or stopped the worker.
            InputError: raised by the environment, as it was.
        """
        process, what = self._process, f"{label}: {request.verb}"
        assert process is not None and process.stdin is not None
        self._stderr, self._last_contact = b"", (time.monotonic(), ran())
        process.stdin.write(worker.framed(request.dump()))
        receipt = self._keep(_receive(process))
        try:
            taken = await self._watch(receipt, process)
            if taken > self._memory:
                await self._terminate()
                detail = f"{what} took {_gib(taken)} of memory; {_gib(self._memory)} are allowed"
                raise EnvironmentFault("memory", detail)
            if not receipt.done():
                # Let it print its stack to stderr. Then wait once more, in case this process
                # was too busy to read the reply.
                with contextlib.suppress(ProcessLookupError, AttributeError):
                    process.send_signal(signal.SIGUSR1)
                await asyncio.wait({receipt}, timeout=0.2)
            if not receipt.done() and process.returncode is not None:
                raise EOFError  # a process that it started holds its pipe open
            if not receipt.done():
                stopped = is_stopped(process.pid)
                await self._terminate()
                detail = f"{what} gave no answer within {self._timeout:g} s{self._stderr_note()}"
                if stopped:
                    detail = f"{what} gave no answer, since its process was stopped from outside"
                    raise InfrastructureFault("workers", detail)
                raise EnvironmentFault("hang", detail)
            answer = receipt.result()
            await self._check_memory(process)
            return _parsed(answer, wire)
        except (OSError, EOFError) as error:
            end = await self._terminate(EXIT_GRACE)
            if end.from_outside:
                detail = f"{what} lost its process from outside ({end})"
                raise InfrastructureFault("workers", detail) from error
            detail = f"{what} ended its process ({end}){self._stderr_note()}"
            raise EnvironmentFault("crash", detail) from error
        except ValueError as error:
            await self._terminate()
            detail = f"{what} broke the protocol of its process: {error}"
            raise EnvironmentFault("rubbish", shortened(detail)) from error
        finally:
            receipt.cancel()

    async def _watch(self, receipt: asyncio.Task[bytes], process: Process) -> int:
        """Wait for an answer until the timeout; mark the call as slow if it is.

        Return early if the process ends or exceeds its memory limit. Return its memory in bytes
        at the last check, 0 if there was none.

        Checks are counted, not seconds: while this process is busy, no call is slow.
        """
        deadline = Deadline(self._timeout, process.pid)
        polls, since, used, taken, left = 0, 0.0, 0.0, 0, self._timeout
        while left > 0:
            await asyncio.wait({receipt}, timeout=min(POLL, left))
            if receipt.done() or process.returncode is not None:
                return taken
            polls += 1
            left, taken = deadline.left(), resident_bytes(process.pid)
            if taken > self._memory:
                return taken
            if polls % SLOW_POLLS == 1:
                since, used = time.monotonic(), processor_seconds(process.pid)
            elif polls % SLOW_POLLS == 0:
                computed = processor_seconds(process.pid) - used
                if polls >= LONG_POLLS or computed < 0.5 * (time.monotonic() - since):
                    self.lock.mark_slow()
        return taken

    async def _check_memory(self, process: Process) -> None:
        """Terminate a worker that has grown too large over many calls, without a fault.

        Its environments are restored by replay, as after a crash of one of them.
        """
        if time.monotonic() - self._memory_checked < MEMORY_CHECK:
            return
        self._memory_checked = time.monotonic()
        if resident_bytes(process.pid, family=True) > self._memory:
            await self._terminate()

    async def close(self) -> None:
        """End the process: first close its input, so that environments clean up; then kill it."""
        self._closed = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await _wait(process, worker.GRACE + 0.5)
            _kill(process)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            await self._terminate()

    async def _terminate(self, grace: float = 0.0) -> End:
        """Kill the process and all that it started; return how it ended.

        A process that is about to exit by itself gets `grace` seconds.
        """
        process, self._process = self._process, None
        assert process is not None
        self._peak = max(self._peak, peak_bytes(process.pid))
        until = ran() + grace
        while process.returncode is None and ran() < until:  # its pipes may stay open
            await asyncio.sleep(POLL / 10)
        ours = self._closed or process.returncode is None
        _kill(process)
        await _wait(process, 5.0)
        if self._listener is not None:
            await asyncio.wait({self._listener}, timeout=1.0)
            self._listener.cancel()
        paused = time.monotonic() - self._last_contact[0] - (ran() - self._last_contact[1])
        end = End(process.returncode, ours, paused)
        if self.incarnations > len(self.ends):
            self.ends.append(end)
        return end

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(STDERR_TAIL):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL:]

    def _stderr_note(self) -> str:
        text = self._stderr.decode(errors="replace").strip()
        return f"; the end of its stderr:\n{text}" if text else ""

    def peak_bytes(self) -> int:
        """Return the peak resident memory of this worker's processes, in bytes."""
        if self._process is not None:
            self._peak = max(self._peak, peak_bytes(self._process.pid))
        return self._peak


def _worker_variables() -> dict[str, str]:
    """Return the environment variables of a worker."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # Equal tasks give equal environments in every worker, even if they iterate over sets.
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
    }
    if "PYTHONPATH" in os.environ:
        variables[worker.OUTER_PYTHONPATH] = os.environ["PYTHONPATH"]
    return variables


async def _receive(process: Process) -> bytes:
    """Return the body of the next frame; EOFError at the end, ValueError if it is too long."""
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(worker.LENGTH), "big")
    if size > MAX_BYTES + 1:
        raise ValueError(f"a frame of {size:,} bytes")
    return await process.stdout.readexactly(size)


def _parsed(body: bytes, wire: Wire[T]) -> T:
    """Return the answer in a reply, or raise the error in it; ValueError for anything else."""
    kind, data = body[:1], body[1:]
    if kind == worker.FAULT:
        raise EnvironmentFault(*worker.FAULTS.validate_json(data, strict=True))
    if kind == worker.ERROR:
        raise worker.PROBLEM.validate_json(data, strict=True).error()
    if kind != worker.ANSWER:
        raise ValueError(f"a reply of unknown kind {kind!r}")
    return wire.load(data)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _ended(process: Process) -> bool:
    return process.returncode is not None or (
        process.stdout is not None and process.stdout.at_eof()
    )


async def _wait(process: Process, seconds: float) -> None:
    """Wait for the end of a process and of its pipes, at most that many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


def _kill(process: Process) -> None:
    """Kill a worker and its process group; it may be gone already."""
    # Not with `process.kill`, which may consume the exit status before it is read.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
