"""The worker: a child process that hosts environments, and the frames it exchanges.

The parent writes one request at a time to the worker's standard input and reads
one reply from its standard output. A frame is its length (4 bytes, big endian)
and its body. The body of a request is the JSON of `Request`; the body of a reply
is one byte that says which kind it is, and JSON. The first reply comes unasked,
when the worker is ready.

A worker ends with its parent, however that ends: when its input closes, when it
finds itself orphaned in the middle of a call, and, should an environment block
the interpreter itself, when a clock outside the interpreter runs out.
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
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

from pydantic import TypeAdapter, with_config

from palaestra.core import errors
from palaestra.core.environment import Action, Environment
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Task
from palaestra.environments import registry
from palaestra.rollout.worlds import BYTES, Keeper, said

LENGTH = 4  # bytes that state how long a frame's body is
ANSWER, FAULT, ERROR = b"+", b"!", b"?"
OUTER_PYTHONPATH = "PALAESTRA_OUTER_PYTHONPATH"
ALLOWANCE = 30.0  # seconds over the time-out of a call after which a blocked worker ends itself
GRACE = 2.0  # seconds a worker has to close its environments before it is killed


class Verb(StrEnum):
    MAKE = "make"  # answered by `worlds.DESCRIPTION`
    RESET = "reset"  # answered by `worlds.STARTED`
    STEP = "step"  # answered by `worlds.STEPPED`
    ORACLE = "oracle"  # answered by `worlds.ACTIONS`
    ADMISSIBLE = "admissible"  # answered by `worlds.WORDS`
    SAMPLE = "sample"  # answered by `worlds.ACTION`
    SNAPSHOT = "snapshot"  # answered by `worlds.SAVED`
    RESTORE = "restore"  # answered by `worlds.RESTORED`
    CLOSE = "close"  # answered by `worlds.NOTHING`


@with_config(BYTES)
@dataclass(frozen=True, slots=True)
class Request:
    """One call of one world."""

    world: int  # the pool's number of the world
    verb: Verb
    environment: str = ""  # of MAKE: the environment's id
    task: Task | None = None  # of RESET
    action: Action | None = None  # of STEP
    seed: int = 0  # of SAMPLE
    snapshot: bytes | None = None  # of RESTORE


@dataclass(frozen=True, slots=True)
class Problem:
    """An `InputError` on its way to the parent."""

    type: str
    message: str
    fields: dict[str, str | int | list[str]]

    def error(self) -> InputError:
        """The error as it was raised; of a type unknown to the core, its nearest ancestor."""
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


def serve(keepers: dict[int, Keeper], request: Request) -> bytes:
    """The body of the reply to one request."""
    try:
        return ANSWER + _answer(keepers, request)
    except EnvironmentFault as fault:
        return FAULT + FAULTS.dump_json((fault.kind, _sendable(fault.detail)))
    except InputError as error:
        return ERROR + PROBLEM.dump_json(_problem(error))


def _answer(keepers: dict[int, Keeper], request: Request) -> bytes:
    match request:
        case Request(verb=Verb.MAKE):
            keeper = Keeper(_make(request.environment), request.environment)
            described = keeper.describe().data
            keepers[request.world] = keeper
            return described
        case Request(verb=Verb.RESET, task=Task() as task):
            return keepers[request.world].reset(task).data
        case Request(verb=Verb.STEP, action=Action() as action):
            return keepers[request.world].step(action).data
        case Request(verb=Verb.ORACLE):
            return keepers[request.world].oracle().data
        case Request(verb=Verb.ADMISSIBLE):
            return keepers[request.world].admissible().data
        case Request(verb=Verb.SAMPLE):
            return keepers[request.world].sample(request.seed).data
        case Request(verb=Verb.SNAPSHOT):
            return keepers[request.world].snapshot().data
        case Request(verb=Verb.RESTORE, snapshot=bytes() as snapshot):
            return keepers[request.world].restore(snapshot).data
        case Request(verb=Verb.CLOSE):
            closed = keepers.pop(request.world, None)
            if closed is not None:
                closed.close()
            return b"null"
    raise ValueError(f"not a request: {request}")


def _make(id: str) -> Environment:
    try:
        return registry.make(id)
    except (InputError, EnvironmentFault):
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault("reset", f"{id}: making it raised {said(error)}") from error


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
    """The text without lone surrogates, which JSON cannot carry."""
    return text.encode(errors="replace").decode()


# ── the process ──────────────────────────────────────────────────────────────


def main() -> None:
    """Serve the parent until it closes the input. Usage: worker SECONDS-OF-ONE-CALL."""
    requests, replies = _take_streams()
    _restore_import_path()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to the whole group
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=False)  # the parent asks where it hangs
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)  # the parent, which feeds all workers, goes first
    limit = float(sys.argv[1]) + ALLOWANCE
    threading.Thread(target=_outlive_no_parent, args=(os.getppid(), limit), daemon=True).start()

    keepers: dict[int, Keeper] = {}
    with contextlib.suppress(BrokenPipeError):
        _send(replies, ANSWER)
        while (body := _receive(requests)) is not None:
            request = REQUEST.validate_json(body, strict=True)
            _send(replies, serve(keepers, request))
    threading.Thread(target=_leave_after, args=(GRACE,), daemon=True).start()
    for keeper in keepers.values():
        keeper.close()
    _leave()


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the protocol's streams private: what an environment prints goes to stderr."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _restore_import_path() -> None:
    """Programs that an environment starts must not inherit this interpreter's import path."""
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


def _outlive_no_parent(parent: int, limit: float) -> None:
    """Leave when orphaned, even in the middle of a call.

    An environment that hangs while it holds the interpreter stops this thread, too;
    the clock of `faulthandler`, wound up here every second, then ends the process.
    """
    while os.getppid() == parent:
        faulthandler.dump_traceback_later(limit, exit=True)
        time.sleep(1.0)
    _leave_after(GRACE)


def _leave_after(seconds: float) -> None:
    time.sleep(seconds)
    _leave()


def _leave() -> None:
    """End this process and what its environments started."""
    with contextlib.suppress(OSError):  # nobody may be left to read it
        sys.stderr.flush()
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
