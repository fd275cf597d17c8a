"""The worker: a child process that hosts environments, and its protocol of frames.

The parent writes requests to the worker's standard input and reads replies from its
standard output. A frame is its length (4 bytes, big endian) and its body. The body of
a request is the JSON of `Request`, then the bytes of its snapshot. The body of a reply
is the number of its call (8 bytes, big endian), one byte for its kind, then JSON; in an
answer, the bytes of images follow the JSON, and a snapshot is its bytes alone (see
`wire.py`). The worker sends a reply to call 0 when it is ready.

An environment that waits (`Spec.waits`) has a thread of its own, so that calls of
several are in progress at once. All others are called in the main thread, and the
parent makes no other call meanwhile.

A worker ends with its parent, however that ends: when its input closes, when it
is orphaned in the middle of a call, and, if an environment blocks the interpreter
itself, when a timer outside the interpreter expires.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from queue import SimpleQueue
from typing import BinaryIO

from pydantic import TypeAdapter

from palaestra.core import errors
from palaestra.core.environment import Action, Environment
from palaestra.core.errors import EnvironmentFault, InputError, SharedFault
from palaestra.core.task import Task
from palaestra.environments import registry
from palaestra.rollout.guarded_environment import NOTHING, GuardedEnvironment, one_line
from palaestra.rollout.wire import joined, split

LENGTH = 4  # bytes of a frame's length prefix
CALL = 8  # bytes of the number of a call
ANSWER, FAULT, SHARED_FAULT, ERROR = b"+", b"!", b"*", b"?"
OUTER_PYTHONPATH = "PALAESTRA_OUTER_PYTHONPATH"
ALLOWANCE = 30.0  # seconds after the timeout of a call until a blocked worker ends itself
GRACE = 2.0  # seconds a worker has to close its environments before it is killed


class Verb(StrEnum):
    """The call of a request; its answer is a type of `guarded_environment`."""

    MAKE = "make"  # answered by DESCRIPTION
    RESET = "reset"  # answered by STARTED
    STEP = "step"  # answered by STEPPED
    ORACLE = "oracle"  # answered by ACTIONS
    ADMISSIBLE = "admissible"  # answered by WORDS
    SAMPLE = "sample"  # answered by ACTED
    LOOK = "look"  # answered by LOOKED
    ANSWER = "answer"  # answered by ACTED
    SNAPSHOT = "snapshot"  # answered by SAVED
    RESTORE = "restore"  # answered by RESTORED
    CLOSE = "close"  # answered by NOTHING


@dataclass(frozen=True, slots=True)
class Request:
    """One call of one environment."""

    number: int  # the pool's number of the environment
    verb: Verb
    call: int = 0  # the number of the call, for its reply
    environment: str = ""  # of MAKE: the environment's id
    waits: bool = False  # of MAKE: whether it gets a thread of its own
    task: Task | None = None  # of RESET
    action: Action | None = None  # of STEP
    seed: int = 0  # of SAMPLE
    snapshot: bytes | None = None  # of RESTORE

    def dump(self) -> bytes:
        """Return the body of its frame."""
        text = REQUEST.dump_json(self, exclude_defaults=True, exclude={"snapshot"})
        return joined(text) if self.snapshot is None else joined(text, self.snapshot)

    @classmethod
    def load(cls, body: bytes) -> Request:
        """Parse the body of a frame; raises ValueError for anything else."""
        text, *snapshots = split(body)
        request = REQUEST.validate_json(text, strict=True)
        return replace(request, snapshot=snapshots[0]) if snapshots else request


@dataclass(frozen=True, slots=True)
class Problem:
    """An `InputError` in a form that can be sent to the parent."""

    type: str
    message: str
    fields: dict[str, str | int | list[str]]

    def error(self) -> InputError:
        """Return the error as it was raised; for a type unknown to the core, its nearest base."""
        found = getattr(errors, self.type, None)
        cls = found if isinstance(found, type) and issubclass(found, InputError) else InputError
        error = cls.__new__(cls)
        error.args = (self.message,)
        vars(error).update(self.fields)
        return error


REQUEST = TypeAdapter(Request)
FAULTS: TypeAdapter[tuple[str, str]] = TypeAdapter(tuple[str, str])
PROBLEM = TypeAdapter(Problem)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH, "big") + body


def serve(environments: dict[int, GuardedEnvironment], request: Request) -> bytes:
    """Return the body of the reply to one request."""
    return request.call.to_bytes(CALL, "big") + _reply(environments, request)


def _reply(environments: dict[int, GuardedEnvironment], request: Request) -> bytes:
    try:
        return ANSWER + _answer(environments, request)
    except EnvironmentFault as fault:
        kind = SHARED_FAULT if isinstance(fault, SharedFault) else FAULT
        return kind + FAULTS.dump_json((fault.kind, _sendable(fault.detail)))
    except InputError as error:
        return ERROR + PROBLEM.dump_json(_problem(error))


def _answer(environments: dict[int, GuardedEnvironment], request: Request) -> bytes:
    match request:
        case Request(verb=Verb.MAKE):
            environment = GuardedEnvironment(_make(request.environment), request.environment)
            described = environment.describe().data
            environments[request.number] = environment
            return described
        case Request(verb=Verb.RESET, task=Task() as task):
            return environments[request.number].reset(task).data
        case Request(verb=Verb.STEP, action=Action() as action):
            return environments[request.number].step(action).data
        case Request(verb=Verb.ORACLE):
            return environments[request.number].oracle().data
        case Request(verb=Verb.ADMISSIBLE):
            return environments[request.number].admissible().data
        case Request(verb=Verb.SAMPLE):
            return environments[request.number].sample(request.seed).data
        case Request(verb=Verb.LOOK):
            return environments[request.number].look().data
        case Request(verb=Verb.ANSWER):
            return environments[request.number].answer().data
        case Request(verb=Verb.SNAPSHOT):
            return environments[request.number].snapshot().data
        case Request(verb=Verb.RESTORE, snapshot=bytes() as snapshot):
            return environments[request.number].restore(snapshot).data
        case Request(verb=Verb.CLOSE):
            closed = environments.pop(request.number, None)
            if closed is not None:
                closed.close()
            return NOTHING.dump(None)
    raise ValueError(f"not a request: {request}")


def _make(id: str) -> Environment:
    try:
        return registry.make(id)
    except (InputError, EnvironmentFault):
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault("reset", f"{id}: making it raised {one_line(error)}") from error


def _problem(error: InputError) -> Problem:
    named = [cls.__name__ for cls in type(error).__mro__ if vars(errors).get(cls.__name__) is cls]
    fields: dict[str, str | int | list[str]] = {}
    for name, value in vars(error).items():
        if isinstance(value, (str, int)):
            fields[name] = value
        elif isinstance(value, list):
            fields[name] = [str(item) for item in value]
    return Problem(named[0], _sendable(str(error)), fields)


def _sendable(text: str) -> str:
    """Return the text without lone surrogates, which JSON cannot represent."""
    return text.encode(errors="replace").decode()


# ── the process ──────────────────────────────────────────────────────────────


def main() -> None:
    """Serve the parent until it closes the input. Usage: worker SECONDS-OF-ONE-CALL."""
    requests, replies = _take_streams()
    _restore_import_path()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to the whole group
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1)  # prints where calls hang
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)  # the parent serves all workers, so it has priority
    limit = float(sys.argv[1]) + ALLOWANCE
    threading.Thread(target=_end_with_parent, args=(os.getppid(), limit), daemon=True).start()

    hosted = _Hosted(replies)
    with contextlib.suppress(BrokenPipeError):
        hosted.send(bytes(CALL) + ANSWER)
        while (body := _receive(requests)) is not None:
            hosted.take(Request.load(body))
    threading.Thread(target=_exit_after, args=(GRACE,), daemon=True).start()
    hosted.close()
    _exit()


class _Hosted:
    """The environments of this process, and the threads of those that wait."""

    def __init__(self, replies: BinaryIO) -> None:
        self._environments: dict[int, GuardedEnvironment] = {}
        self._threads: dict[int, _EnvironmentThread] = {}
        self._replies, self._sending = replies, threading.Lock()

    def take(self, request: Request) -> None:
        """Answer a request, here or in the thread of its environment."""
        if request.waits and request.number not in self._threads:
            self._threads[request.number] = _EnvironmentThread(self._serve)
        thread = self._threads.get(request.number)
        if thread is None:
            self._serve(request)
            return
        if request.verb is Verb.CLOSE:
            del self._threads[request.number]
        thread.requests.put(request)

    def _serve(self, request: Request) -> None:
        self.send(serve(self._environments, request))

    def send(self, body: bytes) -> None:
        with self._sending:
            self._replies.write(framed(body))
            self._replies.flush()

    def close(self) -> None:
        """Close all environments, each in its thread."""
        for number, thread in self._threads.items():
            thread.requests.put(Request(number, Verb.CLOSE))
        for thread in self._threads.values():
            thread.join()
        for environment in self._environments.values():
            environment.close()


class _EnvironmentThread(threading.Thread):
    """The thread of one environment: its calls run here, one after the other, until it is closed.

    An error that is no fault of the environment ends the process, as it does in the main thread.
    """

    def __init__(self, serve: Callable[[Request], None]) -> None:
        super().__init__(daemon=True)
        self._answer = serve
        self.requests: SimpleQueue[Request] = SimpleQueue()
        self.start()

    def run(self) -> None:
        open = True
        while open:
            request = self.requests.get()
            open = request.verb is not Verb.CLOSE
            try:
                self._answer(request)
            except BrokenPipeError:
                return  # the parent has gone
            except BaseException:
                traceback.print_exc()
                os._exit(1)


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the protocol's streams private: environments print to stderr."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _restore_import_path() -> None:
    """Restore the outer PYTHONPATH, for programs that an environment starts."""
    os.environ.pop("PYTHONPATH", None)
    outer = os.environ.pop(OUTER_PYTHONPATH, None)
    if outer is not None:
        os.environ["PYTHONPATH"] = outer


def _receive(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH)
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "big")
    body = stream.read(size)
    return body if len(body) == size else None


def _end_with_parent(parent: int, limit: float) -> None:
    """Exit when orphaned, even in the middle of a call.

    An environment that hangs while it holds the interpreter stops this thread, too;
    the timer of `faulthandler`, reset here every second, then ends the process.
    """
    while os.getppid() == parent:
        faulthandler.dump_traceback_later(limit, exit=True)
        time.sleep(1.0)
    _exit_after(GRACE)


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    _exit()


def _exit() -> None:
    """End this process and all that its environments started."""
    with contextlib.suppress(OSError):  # its reader may be gone
        sys.stderr.flush()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
