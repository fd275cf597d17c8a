"""A host: one place for a worker process on the parent's side, refilled when it ends.

Whoever has the turn is alone with the process, so each reply belongs to the
request before it, and a crash, a hang or a broken frame to the call that was under way.
Unless it was somebody else who ended or stopped the process: that is nobody's fault here.
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

from pydantic import TypeAdapter

from palaestra.core.errors import EnvironmentFault, InfrastructureFault, WorkersUnavailable
from palaestra.core.heartbeat import ran
from palaestra.rollout import worker
from palaestra.rollout.deadline import Deadline
from palaestra.rollout.end import End
from palaestra.rollout.line import Line
from palaestra.rollout.processes import (
    is_stopped,
    peak_bytes,
    processor_seconds,
    resident_bytes,
)
from palaestra.rollout.worlds import MAX_BYTES, shortened

T = TypeVar("T")

START_SECONDS = 120.0  # a worker that is not ready by then cannot start
BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before a worker is started once more
LAST_WORDS = 4096  # bytes of a worker's stderr that are kept for messages
DYING = 1.0  # seconds in which a process whose pipe has closed comes to its own end

GLANCE = 0.05  # seconds between looks at a call under way
PATIENCE = 5  # glances after which a call that waits (for a program, the network …) is slow
LOOKS = 1.0  # seconds between looks at the memory of a worker that answers quickly
LONG = 100  # likewise, for one that computes: another process would take its processor


class Host:
    """One place in the pool: a child process, replaced when it is needed after its end.

    Everything but `turn`, `later`, `close` and `peak_bytes` is for those whose turn it is.
    """

    def __init__(self, timeout: float, memory: int) -> None:
        self.load = 0  # how many open worlds live here
        self.births = 0  # how many processes have been started here
        self.ends: list[End] = []  # of these, in their order
        self._timeout, self._memory = timeout, memory
        self._looked = 0.0  # when the memory was last looked at
        self._heard = (0.0, 0.0)  # when the process was last heard of, and how long this one ran
        self.line = Line()
        self._process: Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._words = b""  # the end of what the process has written to stderr
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._peak = 0

    async def turn(
        self, talk: Callable[[], Coroutine[Any, Any, T]], *, may_leave: bool = False
    ) -> T:
        """Run `talk` with the worker to itself.

        Whoever is cancelled before its turn has asked nothing. After that, the talk
        goes on without its caller and keeps the worker, so requests and replies stay paired.

        Raises:
            Slow: the call under way is slow, and this one may be made elsewhere.
        """
        await self.line.enter(may_leave)
        task = self._keep(talk())
        task.add_done_callback(lambda _: self.line.leave())
        return await asyncio.shield(task)

    def later(self, talk: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Queue for a turn, whatever happens to the caller."""
        return self._keep(self.turn(talk))

    def _keep(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen here, for a caller may be gone

    def lives(self, birth: int) -> bool:
        """Whether that incarnation is still there, as far as is known."""
        return self._process is not None and birth == self.births

    async def ready(self) -> int:
        """Make sure that a process lives; returns which incarnation it is.

        Raises:
            InfrastructureFault: the pool is closed.
            WorkersUnavailable: it does not start, however often it is tried.
        """
        self._check_open()
        for _ in range(2):  # rounds of the loop in which an end that lies in the past is noticed
            await asyncio.sleep(0)
        if self._process is not None and _ended(self._process):
            await self._bury(DYING)
        for pause in BACK_OFF if self._process is None else ():
            if await self._start() is None:
                break
            await asyncio.sleep(pause)  # what it lacks may be there by then
            self._check_open()
        if self._process is None and (reason := await self._start()) is not None:
            raise WorkersUnavailable(
                f"A worker process does not start: {len(BACK_OFF) + 1} times it ended before it "
                f"was ready (the last time: {reason}). Free memory if it was killed, or mend what "
                "its last words name, and try again."
            )
        return self.births

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureFault("workers", "the worker pool is closed")

    async def _start(self) -> str | None:
        """Start a process; returns why it is not ready, None if it is."""
        command = [sys.executable, "-P", "-m", worker.__name__, str(self._timeout)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=2**20,
                env=_surroundings(),
                start_new_session=True,  # a group of its own: what it starts ends with it
            )
        except OSError as error:
            return str(error)
        self._process, self._words = process, b""
        self._listener = asyncio.create_task(self._listen(process))
        receipt = self._keep(_receive(process))
        deadline = Deadline(START_SECONDS, process.pid)
        try:
            while not receipt.done() and deadline.left() > 0:
                await asyncio.wait({receipt}, timeout=GLANCE)
            if not receipt.done():
                raise TimeoutError
            receipt.result()
        except (OSError, EOFError, ValueError):
            end = await self._bury(DYING if receipt.done() else 0.0)
            words = self._words.decode(errors="replace").strip().splitlines()
            return f"{end}, {shortened(words[-1], 200)}" if words else str(end)
        finally:
            receipt.cancel()
        self.births, self._heard = self.births + 1, (time.monotonic(), ran())
        return None

    async def exchange(self, request: worker.Request, shape: TypeAdapter[T], label: str) -> T:
        """Send one request and return the answer; a broken worker is ended.

        Raises:
            EnvironmentFault: the environment crashed, hung, spoke rubbish, raised, or took more
                memory than it may.
            InfrastructureFault: somebody else killed or stopped the worker.
            InputError: raised by the environment, as it was.
        """
        process, what = self._process, f"{label}: {request.verb}"
        assert process is not None and process.stdin is not None
        self._words, self._heard = b"", (time.monotonic(), ran())
        process.stdin.write(worker.framed(worker.REQUEST.dump_json(request, exclude_defaults=True)))
        receipt = self._keep(_receive(process))
        try:
            taken = await self._watch(receipt, process)
            if taken > self._memory:
                await self._bury()
                detail = f"{what} took {_gib(taken)} of memory; {_gib(self._memory)} are allowed"
                raise EnvironmentFault("memory", detail)
            if not receipt.done():
                # Its stack goes to stderr. And it is heard once more, in case it was
                # this process that had no time to listen.
                with contextlib.suppress(ProcessLookupError, AttributeError):
                    process.send_signal(signal.SIGUSR1)
                await asyncio.wait({receipt}, timeout=0.2)
            if not receipt.done() and process.returncode is not None:
                raise EOFError  # what it started holds its pipe open
            if not receipt.done():
                stopped = is_stopped(process.pid)
                await self._bury()
                detail = f"{what} gave no answer within {self._timeout:g} s{self._said()}"
                if stopped:
                    detail = f"{what} gave no answer, since its process was stopped from outside"
                    raise InfrastructureFault("workers", detail)
                raise EnvironmentFault("hang", detail)
            answer = receipt.result()
            await self._look(process)
            return _opened(answer, shape)
        except (OSError, EOFError) as error:
            end = await self._bury(DYING)
            if end.from_outside:
                detail = f"{what} lost its process from outside ({end})"
                raise InfrastructureFault("workers", detail) from error
            detail = f"{what} ended its process ({end}){self._said()}"
            raise EnvironmentFault("crash", detail) from error
        except ValueError as error:
            await self._bury()
            detail = f"{what} broke the protocol of its process: {error}"
            raise EnvironmentFault("rubbish", shortened(detail)) from error
        finally:
            receipt.cancel()

    async def _watch(self, receipt: asyncio.Task[bytes], process: Process) -> int:
        """Wait for an answer, as long as a call may take; tell the line if it is slow.

        Ends early where the process ends, or takes too much memory; returns how many bytes it
        took at the last look, 0 if there was none.

        Glances are counted, not seconds: while this process is busy, none is slow.
        """
        deadline = Deadline(self._timeout, process.pid)
        glances, since, used, taken, left = 0, 0.0, 0.0, 0, self._timeout
        while left > 0:
            await asyncio.wait({receipt}, timeout=min(GLANCE, left))
            if receipt.done() or process.returncode is not None:
                return taken
            glances += 1
            left, taken = deadline.left(), resident_bytes(process.pid)
            if taken > self._memory:
                return taken
            if glances % PATIENCE == 1:
                since, used = time.monotonic(), processor_seconds(process.pid)
            elif glances % PATIENCE == 0:
                computed = processor_seconds(process.pid) - used
                if glances >= LONG or computed < 0.5 * (time.monotonic() - since):
                    self.line.tell_slow()
        return taken

    async def _look(self, process: Process) -> None:
        """Replace a worker that has grown too large over many calls: whose fault is not known.

        Its worlds are brought back by replay, as after a crash of one of them.
        """
        if time.monotonic() - self._looked < LOOKS:
            return
        self._looked = time.monotonic()
        if resident_bytes(process.pid, family=True) > self._memory:
            await self._bury()

    async def close(self) -> None:
        """End the process: kindly, so that environments can clean up, then by force."""
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
            await self._bury()

    async def _bury(self, dying: float = 0.0) -> End:
        """End the process and all that it started; says how it ended.

        One that is about to end by itself gets `dying` seconds for that.
        """
        process, self._process = self._process, None
        assert process is not None
        self._peak = max(self._peak, peak_bytes(process.pid))
        until = ran() + dying
        while process.returncode is None and ran() < until:  # its pipes may stay open
            await asyncio.sleep(GLANCE / 10)
        ours = self._closed or process.returncode is None
        _kill(process)
        await _wait(process, 5.0)
        if self._listener is not None:
            await asyncio.wait({self._listener}, timeout=1.0)
            self._listener.cancel()
        stood = time.monotonic() - self._heard[0] - (ran() - self._heard[1])
        end = End(process.returncode, ours, stood)
        if self.births > len(self.ends):
            self.ends.append(end)
        return end

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(LAST_WORDS):
            self._words = (self._words + chunk)[-LAST_WORDS:]

    def _said(self) -> str:
        words = self._words.decode(errors="replace").strip()
        return f"; its last words:\n{words}" if words else ""

    def peak_bytes(self) -> int:
        """Peak resident memory of the processes that have lived here, in bytes."""
        if self._process is not None:
            self._peak = max(self._peak, peak_bytes(self._process.pid))
        return self._peak


def _surroundings() -> dict[str, str]:
    """Environment variables of a worker."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # Equal tasks give equal worlds in every worker, even where sets of strings decide.
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
    }
    if "PYTHONPATH" in os.environ:
        variables[worker.OUTER_PYTHONPATH] = os.environ["PYTHONPATH"]
    return variables


async def _receive(process: Process) -> bytes:
    """The body of the next frame; EOFError at the end, ValueError if it is too long."""
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(worker.LENGTH), "big")
    if size > MAX_BYTES + 1:
        raise ValueError(f"a frame of {size:,} bytes")
    return await process.stdout.readexactly(size)


def _opened(body: bytes, shape: TypeAdapter[T]) -> T:
    """The answer in a reply; raises the fault or error in it, ValueError for anything else."""
    kind, data = body[:1], body[1:]
    if kind == worker.FAULT:
        raise EnvironmentFault(*worker.FAULTS.validate_json(data, strict=True))
    if kind == worker.ERROR:
        raise worker.PROBLEM.validate_json(data, strict=True).error()
    if kind != worker.ANSWER:
        raise ValueError(f"a reply of unknown kind {kind!r}")
    return shape.validate_json(data, strict=True)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _ended(process: Process) -> bool:
    return process.returncode is not None or (
        process.stdout is not None and process.stdout.at_eof()
    )


async def _wait(process: Process, seconds: float) -> None:
    """Wait so long for the end of a process and of its pipes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


def _kill(process: Process) -> None:
    """Kill a worker and everything in its group; it may be gone already."""
    # Not with `process.kill`, which may take its exit status away from who waits for it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
