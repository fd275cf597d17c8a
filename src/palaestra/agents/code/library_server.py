"""A library of functions as an MCP server: other agents can call them as tools.

Source: Qiu et al. 2025 (Alita: capabilities that an agent wrote become MCP tools); Model Context
Protocol (package `mcp`), over stdio. Start it with `palaestra agents library FILE --serve`, or with
`python -m palaestra.agents.code.library_server FILE`.

Each call runs in a fresh sandbox with the newest version of every function: calls share no state,
and no function runs in this process. The server keeps one warm sandbox with a started interpreter.
It reads the library at each listing and each call, so new functions are served at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra import __version__
from palaestra.agents.code.function_schema import positional_only, tool_of
from palaestra.agents.code.library import Function, Library
from palaestra.core.errors import MissingPackage, PalaestraError
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, checked
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.interpreter import Asked, Interpreter
from palaestra.sandbox.sandbox_pool import Pool

SECONDS = 10.0  # of a call
RETURN = "_hand_out"  # the function that passes a value out of the sandbox
INSTRUCTIONS = "Functions that an agent wrote, tested and kept; each runs in a sandbox."


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
    functions: Sequence[Function], asked: ToolCall, pool: Pool, *, seconds: float = SECONDS
) -> Result:
    """Call one of the functions in a fresh sandbox of the pool; functions may call each other.

    Raises:
        NotACall: there is no such function, or the arguments do not fit it.
        InfrastructureFault: no sandbox could be started.
    """
    by_name = {function.name: function for function in functions}
    checked(asked, [tool_of(function) for function in by_name.values()])
    warm = pool.take()
    try:
        python = Interpreter(warm.sandbox, seconds=seconds, program=warm.program)
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
        f"_places, _names = __import__('json').loads({given!r})\n"
        f"_value = {wanted.name}(*_places, **_names)\n"
        f"try:\n    {RETURN}(_value)\nexcept TypeError:\n    {RETURN}(repr(_value))\n"
    )
    event = python.begin(source, [RETURN])
    value: Any = None
    while isinstance(event, Asked):
        value = event.args[0] if event.args else None
        event = python.answer(None)
    if event.error:
        return Result(str(event), failed=True)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Result(f"{event.output}{text}", value)


async def serve(library: Library, *, sandbox: str = "auto", seconds: float = SECONDS) -> None:
    """Serve MCP over stdin and stdout until the client disconnects.

    Raises:
        MissingPackage: `mcp` is not installed.
    """
    try:
        from mcp import MCPError, types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingPackage(
            "Serving a library needs the package mcp, version 2; install it with: pip install "
            "'palaestra[mcp]'."
        ) from None

    async def listed(context: Any, asked: Any) -> Any:
        tools = [tool_of(function) for function in library.latest()]
        return types.ListToolsResult(
            tools=[
                types.Tool(name=t.name, description=t.description, input_schema=dict(t.parameters))
                for t in tools
            ]
        )

    async def called(context: Any, asked: Any) -> Any:
        wanted = ToolCall(asked.name, asked.arguments or {})
        try:
            found = await asyncio.to_thread(call, library.latest(), wanted, pool, seconds=seconds)
        except NotACall as why:
            raise MCPError(types.INVALID_PARAMS, str(why)) from None
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=found.text)],
            structured_content=None if found.failed else {"result": found.value},
            is_error=found.failed,
        )

    server = Server(
        "palaestra-library",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )
    with warm_pool(sandbox, seconds) as pool:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="palaestra.agents.code.library_server", description=__doc__
    )
    parser.add_argument("library", metavar="FILE")
    parser.add_argument("--sandbox", default="auto", metavar="KIND")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="of a call")
    asked = parser.parse_args(given)
    try:
        work = serve(Library(asked.library), sandbox=asked.sandbox, seconds=asked.seconds)
        asyncio.run(work)
    except PalaestraError as error:
        print(f"palaestra: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
