"""What runs inside a sandbox to try a package: expressions in, what became of them out.

`{"setup": …, "expressions": […], "trace": FOLDER}` on stdin; on stdout a list with the `repr` of
each value, or the exception's name, and with `trace` the lines of that folder that were executed.
Needs Python's standard library and nothing of palaestra.
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
CUT = 5000  # characters of one value


class TimeUp(BaseException):
    """The expression has used up its time."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TimeUp


def tried(expression: str, space: dict[str, Any]) -> str:
    """What an expression gives."""
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        return repr(eval(expression, space))[:CUT]
    except BaseException as error:
        return f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    """Answer what stdin asks."""
    asked = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = sys.stderr = io.StringIO()
    sys.path.insert(0, os.getcwd())
    signal.signal(signal.SIGALRM, _alarm)
    executed: set[tuple[str, int]] = set()
    folder = asked["trace"]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        path = os.path.relpath(frame.f_code.co_filename)
        if not path.startswith(folder + "/"):
            return None
        executed.add((path, frame.f_lineno))
        return trace

    space: dict[str, Any] = {}
    try:
        exec(asked["setup"], space)
    except BaseException as error:
        found = [f"raises {type(error).__name__} on import"] * len(asked["expressions"])
    else:
        if folder:
            sys.settrace(trace)
        found = [tried(expression, space) for expression in asked["expressions"]]
        sys.settrace(None)
    json.dump({"found": found, "executed": sorted(executed)}, answers)
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
