"""The worker: a child process that hosts environments, and its protocol of frames.

The parent writes one request at a time to the worker's standard input and reads
one reply from its standard output. A frame is its length (4 bytes, big endian)
and its body. The body of a request is the JSON of `Request`, then the bytes of its
snapshot. The body of a reply is one byte for its kind, then JSON; in an answer, the
bytes of images follow the JSON, and a snapshot is its bytes alone (see `wire.py`).
The worker sends a first reply without a request when it is ready.

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
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import BinaryIO

from pydantic import TypeAdapter

from palaestra.core import errors
from palaestra.core.environment import Action, Environment
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Task
from palaestra.environments import registry
from palaestra.rollout.guarded_environment import NOTHING, GuardedEnvironment, one_line
from palaestra.rollout.wire import joined, split

LENGTH = 4  # bytes of a frame's length prefix
ANSWER, FAULT, ERROR = b"+", b"!", b"?"
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
    environment: str = ""  # of MAKE: the environment's id
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
    try:
        return ANSWER + _answer(environments, request)
    except EnvironmentFault as fault:
        return FAULT + FAULTS.dump_json((fault.kind, _sendable(fault.detail)))
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
        faulthandler.register(signal.SIGUSR1, all_threads=False)  # prints where a call hangs
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)  # the parent serves all workers, so it has priority
    limit = float(sys.argv[1]) + ALLOWANCE
    threading.Thread(target=_end_with_parent, args=(os.getppid(), limit), daemon=True).start()

    environments: dict[int, GuardedEnvironment] = {}
    with contextlib.suppress(BrokenPipeError):
        _send(replies, ANSWER)
        while (body := _receive(requests)) is not None:
            _send(replies, serve(environments, Request.load(body)))
    threading.Thread(target=_exit_after, args=(GRACE,), daemon=True).start()
    for environment in environments.values():
        environment.close()
    _exit()


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


def _send(stream: BinaryIO, body: bytes) -> None:
    stream.write(framed(body))
    stream.flush()


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
