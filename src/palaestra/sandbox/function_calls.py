"""Calls of library functions, each in a fresh sandbox: no function runs in the caller's process.

The newest version of every function is defined there, so functions may call each other; calls share
no state. A pool keeps one warm sandbox with a started interpreter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.core.tool import checked
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.function_library import Function
from palaestra.sandbox.function_schema import positional_only, tool_of
from palaestra.sandbox.interpreter import Asked, Interpreter
from palaestra.sandbox.sandbox_pool import Pool

SECONDS = 10.0  # of a call
RETURN = "_hand_out"  # the function that passes a value out of the sandbox
VARIABLES = re.compile(r"; variables are (kept|lost)\.$")  # of no interest: a call shares none


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call."""

    text: str  # its output, then its value; or its traceback
    value: Any = None  # as JSON; its `repr` where JSON cannot represent it
    failed: bool = False


def warm_pool(sandbox: str = "auto", seconds: float = SECONDS) -> Pool:
    """Return a pool with one warm sandbox for `call`; the caller closes it."""
    limits = Limits(seconds=seconds + 2 * interpreter.GRACE)  # the cell's own limit comes first
    settings = interpreter.settings(sandbox, limits)
    return Pool(lambda: open_sandbox(sandbox, settings), 1, command=interpreter.command())


def call(
    functions: Sequence[Function],
    asked: ToolCall,
    pool: Pool,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
) -> Result:
    """Call one of the functions in a fresh sandbox of the pool; functions may call each other.

    Args:
        functions: the newest versions.
        asked: the function and its arguments.
        pool: of sandboxes, see `warm_pool`.
        seconds: the limit of the call; beyond it, the call has failed.
        seed: of `random` in the sandbox.

    Raises:
        NotACall: there is no such function, or the arguments do not fit it.
        InfrastructureFault: no sandbox could be started.
    """
    by_name = {function.name: function for function in functions}
    checked(asked, [tool_of(function) for function in by_name.values()])
    warm = pool.take()
    try:
        python = Interpreter(warm.sandbox, seconds=seconds, seed=seed, program=warm.program)
        try:
            return _called(
                python, list(by_name.values()), by_name[asked.name], dict(asked.arguments)
            )
        finally:
            python.close()
    finally:
        warm.close()


def _called(
    python: Interpreter, functions: Sequence[Function], wanted: Function, arguments: dict[str, Any]
) -> Result:
    for function in functions:
        done = python.run(function.source)
        if done.error and function is wanted:
            return Result(done.error, failed=True)
    positional = [arguments.pop(name) for name in positional_only(wanted) if name in arguments]
    given = json.dumps([positional, arguments])
    source = (
        "import json as _json\n"
        f"_places, _names = _json.loads({given!r})\n"
        f"_value = {wanted.name}(*_places, **_names)\n"
        f"try:\n    _json.dumps(_value, allow_nan=False)\n    {RETURN}(_value)\n"
        f"except (TypeError, ValueError):\n    {RETURN}(repr(_value), type(_value).__name__)\n"
    )
    event = python.begin(source, [RETURN])
    value, note = None, ""
    while isinstance(event, Asked):
        value, *kind = event.args or (None,)
        note = f"\n(JSON cannot hold a value of type {kind[0]}; this is its repr.)" if kind else ""
        event = python.answer(None)
    if event.error:
        return Result(_encodable(VARIABLES.sub(".", str(event))), failed=True)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Result(_encodable(f"{event.output}{text}{note}"), value)


def _encodable(text: str) -> str:
    """Return a text that a record can hold: without lone surrogates."""
    return text.encode(errors="replace").decode()
