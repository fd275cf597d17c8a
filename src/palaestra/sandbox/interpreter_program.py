"""The program of `interpreter.py` inside a sandbox: runs cells of Python and returns their results.

Messages are JSON, one object per line. `{"cell": …, "seconds": …, "functions": […], "watch": […]}`
runs a cell; the response has `out` (its output), `value` (of a last expression), `error` (a
traceback) and `called` (the watched names that were called and returned). A call of an outside
function is sent as `{"call": …, "args": […], "kwargs": {…}}` instead, and is answered by
`{"value": …}`, with more `functions` if there are any, or by `{"error": …}`. It needs only Python's
standard library.
"""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

CUT = 10_000  # characters of the output that are kept from either end


class TimeUp(BaseException):
    """The end of a cell's time; not caught by `except Exception`."""


class Watched(ast.NodeTransformer):
    """A transformer that reports calls of some names, as `f(…)` or `thing.f(…)`, on return."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        if name not in self.names:
            return node
        report = ast.Name("__returned__", ast.Load())
        return ast.Call(report, [ast.Constant(name), node], [])


class Inside:
    """The interpreter: one namespace for all cells."""

    def __init__(self) -> None:
        self.inbox = os.fdopen(os.dup(0), encoding="utf-8")
        self.outbox = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self.written = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the interpreter lives
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(self.written.fileno(), 1)
        os.dup2(self.written.fileno(), 2)
        self.called: list[str] = []
        self.number = 0
        self.space: dict[str, Any] = {"__name__": "__main__", "__returned__": self._returned}
        signal.signal(signal.SIGALRM, _alarm)

    def serve(self) -> None:
        """Run cells until the input ends."""
        for line in self.inbox:
            asked = json.loads(line)
            if "seed" in asked:
                random.seed(asked["seed"])
            self._offer(asked["functions"])
            done = self._run(asked["cell"], asked["seconds"], asked["watch"])
            self._send(json.dumps(done))

    def _run(self, source: str, seconds: float, watch: list[str]) -> dict[str, Any]:
        self.number += 1
        self.called = []
        value: str | None = None
        error: str | None = None
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            found = self._evaluated(source, watch)
            value = found if found is None or isinstance(found, str) else repr(found)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as problem:
            signal.setitimer(signal.ITIMER_REAL, 0)
            error = _traceback(problem, seconds)
        return {"out": self._output(), "value": value, "error": error, "called": self.called}

    def _evaluated(self, source: str, watch: list[str]) -> Any:
        """Run the cell; return the value of its last statement if that is an expression."""
        name = f"<cell {self.number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        if watch:
            tree = ast.fix_missing_locations(Watched(watch).visit(tree))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self.space)
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), name, "eval"), self.space)

    def _offer(self, functions: list[str]) -> None:
        """Define outside functions; `mail.send` is `send` of the namespace `mail`."""
        for name in functions:
            *path, last = name.split(".")
            place = self.space
            for part in path:
                if not isinstance(place.get(part), SimpleNamespace):
                    place[part] = SimpleNamespace()
                place = vars(place[part])
            place[last] = self._outside(name)

    def _outside(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                asked = json.dumps({"call": name, "args": args, "kwargs": kwargs})
            except (TypeError, ValueError):
                raise TypeError(f"{name} takes texts, numbers, lists, dictionaries") from None
            left, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # time outside does not count
            try:
                self._send(asked)
                answer = json.loads(self.inbox.readline() or '{"error": "nobody answers"}')
            finally:
                signal.setitimer(signal.ITIMER_REAL, left, 1.0)
            if "error" in answer:
                raise RuntimeError(answer["error"])
            self._offer(answer["functions"])
            return answer["value"]

        call.__name__ = call.__qualname__ = name
        return call

    def _returned(self, name: str, value: Any) -> Any:
        self.called.append(name)
        return value

    def _output(self) -> str:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()  # unless the cell has closed it
        self.written.seek(0)
        text = self.written.read().decode(errors="replace")
        self.written.seek(0)
        self.written.truncate()
        return text if len(text) <= 2 * CUT else f"{text[:CUT]}\n…\n{text[-CUT:]}"

    def _send(self, line: str) -> None:
        self.outbox.write(line + "\n")
        self.outbox.flush()


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TimeUp


def _traceback(problem: BaseException, seconds: float) -> str:
    """Return the traceback from the cell on."""
    if isinstance(problem, TimeUp):
        return f"Stopped after {seconds:g} s; variables are kept."
    trace = problem.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell"):
        trace = trace.tb_next
    problem.__context__ = None if isinstance(problem, SyntaxError) else problem.__context__
    summary = traceback.TracebackException(type(problem), problem, trace)
    part: traceback.TracebackException | None = summary
    while part is not None:  # without the frames of this file
        frames = [frame for frame in part.stack if frame.filename != "<string>"]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(summary.format()).rstrip()


if __name__ == "__main__":
    Inside().serve()
