"""One worker process: calls go in, and each reply goes to the call that waits for it.

When the process ends, or its stream of replies breaks, all calls in progress fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace

from palaestra.rollout import worker
from palaestra.rollout.guarded_environment import MAX_BYTES
from palaestra.rollout.worker_end import End

STDERR_TAIL = 4096  # bytes of a worker's stderr that are kept for messages


class WorkerProcess:
    """A worker process, its calls in progress, and the end of its stderr."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.stderr = b""
        self.calls: dict[int, asyncio.Future[bytes]] = {}
        """By number: the replies of the calls that are in progress, until `finish`."""

        self.ending: asyncio.Task[End] | None = None  # how it ended, once it is being ended
        self.together = 0  # how many calls were in progress then
        self._process = process
        self._numbers = itertools.count(1)
        self._broken: Exception | None = None  # why there are no more replies
        self.ready = self._expect(0)
        self._reader = asyncio.create_task(self._read())
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, timeout: float) -> WorkerProcess:
        """Start a process; it answers once its future `ready` is done. Raises OSError.

        Args:
            timeout: seconds of one call.
        """
        command = [sys.executable, "-P", "-m", worker.__name__, str(timeout)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=2**20,
            env=_variables(),
            start_new_session=True,  # its own process group, so that its children end with it
        )
        return cls(process)

    def send(self, request: worker.Request) -> tuple[int, asyncio.Future[bytes]]:
        """Send a request; return the number of the call, and its reply without the number.

        The reply fails with EOFError if the process ends before, and with ValueError if it breaks
        the protocol.
        """
        number = next(self._numbers)
        reply = self._expect(number)
        if self._broken is not None:
            reply.set_exception(self._broken)
        assert self._process.stdin is not None
        self._process.stdin.write(worker.framed(replace(request, call=number).dump()))
        return number, reply

    def _expect(self, number: int) -> asyncio.Future[bytes]:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(_retrieve)
        self.calls[number] = reply
        return reply

    def finish(self, number: int) -> None:
        """Note that a call is no longer in progress."""
        del self.calls[number]

    async def _read(self) -> None:
        """Give replies to their calls until the stream ends or breaks."""
        assert self._process.stdout is not None
        try:
            while True:
                head = await self._process.stdout.readexactly(worker.LENGTH)
                size = int.from_bytes(head, "big")
                if size > MAX_BYTES + worker.CALL + 1:
                    raise ValueError(f"a frame of {size:,} bytes")
                body = await self._process.stdout.readexactly(size)
                reply = self.calls.get(int.from_bytes(body[: worker.CALL], "big"))
                if len(body) <= worker.CALL or reply is None or reply.done():
                    raise ValueError("a reply to no call")
                reply.set_result(body[worker.CALL :])
        except (OSError, EOFError, ValueError) as error:
            self._broken = error
            for reply in self.calls.values():
                if not reply.done():
                    reply.set_exception(error)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(STDERR_TAIL):
            self.stderr = (self.stderr + chunk)[-STDERR_TAIL:]

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        return self._process.returncode

    @property
    def ended(self) -> bool:
        """Whether it takes no more calls."""
        return self._broken is not None or self.status is not None or self.ending is not None

    def print_stacks(self) -> None:
        """Let it print to stderr where its threads are."""
        with contextlib.suppress(ProcessLookupError, AttributeError):
            self._process.send_signal(signal.SIGUSR1)

    async def close_input(self, seconds: float) -> None:
        """Close its input, so that it ends by itself, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._wait(seconds)

    async def kill(self) -> None:
        """Kill it and all that it started; it may be gone already."""
        # Not with `process.kill`, which may consume the exit status before it is read.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._wait(5.0)
        await asyncio.wait({self._listener, self._reader}, timeout=1.0)
        self._listener.cancel()
        self._reader.cancel()
        for reply in self.calls.values():
            if not reply.done():
                reply.set_exception(EOFError())

    async def _wait(self, seconds: float) -> None:
        """Wait for the end of the process and of its pipes, at most that many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()


def _variables() -> dict[str, str]:
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


def _retrieve(reply: asyncio.Future[bytes]) -> None:
    if not reply.cancelled():
        reply.exception()  # retrieved here, because the caller may be gone
