"""A program that evaluates a package's expressions inside a sandbox.

It reads `{"setup": …, "expressions": […], "trace": FOLDER}` on stdin, and writes to stdout the
`repr` of each value, or the exception's name, and with `trace` the executed lines of that folder.
It needs Python's standard library and nothing of palaestra.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from types import FrameType
from typing import Any

SECONDS = 1.0  # of one expression
CUT = 5000  # maximum characters of one value


class TimeUp(BaseException):
    """An expression has used up its time."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TimeUp


def tried(expression: str, space: dict[str, Any]) -> str:
    """Evaluate an expression; return its `repr` or its exception's name."""
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        return repr(eval(expression, space))[:CUT]
    except BaseException as error:
        return f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    """Evaluate the request on stdin."""
    request = json.loads(sys.stdin.read())
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = sys.stderr = io.StringIO()
    sys.path.insert(0, os.getcwd())
    signal.signal(signal.SIGALRM, _alarm)
    executed: set[tuple[str, int]] = set()
    folder = request["trace"]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        path = os.path.relpath(frame.f_code.co_filename)
        if not path.startswith(folder + "/"):
            return None
        executed.add((path, frame.f_lineno))
        return trace

    space: dict[str, Any] = {}
    try:
        exec(request["setup"], space)
    except BaseException as error:
        found = [f"raises {type(error).__name__} on import"] * len(request["expressions"])
    else:
        if folder:
            sys.settrace(trace)
        found = [tried(expression, space) for expression in request["expressions"]]
        sys.settrace(None)
    json.dump({"found": found, "executed": sorted(executed)}, output)
    output.close()
    os._exit(0)


if __name__ == "__main__":
    main()
