"""A library of functions as an MCP server: what one agent wrote, any other can call as a tool.

Source: Qiu et al. 2025 (Alita: capabilities that an agent made become MCP tools); Model Context
Protocol (package `mcp`), over stdio. `python -m palaestra.agents.code.serving FILE`, or `palaestra
agents library FILE --serve`.

Each call runs in a sandbox of its own, with the newest version of every function: nothing that a
call leaves behind is there for the next one, and no function ever runs in this process. The server
keeps the next sandbox ready, its interpreter started. The library is read anew whenever tools are
listed or called, so what is kept meanwhile is served.
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
from palaestra.agents.code.library import Function, Library
from palaestra.agents.code.schema import only_by_place, tool_of
from palaestra.core.errors import MissingPackage, PalaestraError
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, checked
from palaestra.safety import interpreter
from palaestra.safety.interpreter import Asked, Interpreter
from palaestra.safety.opening import open_sandbox
from palaestra.safety.pool import Pool
from palaestra.safety.sandbox import Limits

SECONDS = 10.0  # of a call
HAND = "_hand_out"  # the function by which a value leaves the sandbox
TOLD = "Functions that an agent wrote, tested and kept; each runs in a sandbox."


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call."""

    text: str  # what it printed, then its value; or its traceback
    value: Any = None  # as JSON carries it; words where it cannot
    failed: bool = False


def kept_ready(sandbox: str = "auto", seconds: float = SECONDS) -> Pool:
    """Sandboxes for `call`, one ahead; who makes it closes it."""
    limits = Limits(seconds=seconds + 2 * interpreter.GRACE)  # the cell's own limit comes first
    settings = interpreter.settings(sandbox, limits)
    return Pool(lambda: open_sandbox(sandbox, settings), 1, command=interpreter.command())


def call(
    functions: Sequence[Function], asked: ToolCall, pool: Pool, *, seconds: float = SECONDS
) -> Result:
    """Call one of the functions, which may call each other, in a fresh sandbox of the pool.

    Raises:
        NotACall: there is no such function, or the arguments do not fit it.
        InfrastructureFault: no sandbox could be made.
    """
    known = {function.name: function for function in functions}
    checked(asked, [tool_of(function) for function in known.values()])
    warm = pool.take()
    try:
        python = Interpreter(warm.sandbox, seconds=seconds, program=warm.program)
        try:
            return _called(python, list(known.values()), known[asked.name], dict(asked.arguments))
        finally:
            python.close()
    finally:
        warm.close()


def _called(
    python: Interpreter, known: Sequence[Function], wanted: Function, arguments: dict[str, Any]
) -> Result:
    for function in known:
        done = python.run(function.source)
        if done.error and function is wanted:
            return Result(done.error, failed=True)
    places = [arguments.pop(name) for name in only_by_place(wanted) if name in arguments]
    given = json.dumps([places, arguments])
    source = (
        f"_places, _names = __import__('json').loads({given!r})\n"
        f"_value = {wanted.name}(*_places, **_names)\n"
        f"try:\n    {HAND}(_value)\nexcept TypeError:\n    {HAND}(repr(_value))\n"
    )
    event = python.begin(source, [HAND])
    value: Any = None
    while isinstance(event, Asked):
        value = event.args[0] if event.args else None
        event = python.answer(None)
    if event.error:
        return Result(str(event), failed=True)
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Result(f"{event.output}{said}", value)


async def serve(library: Library, *, sandbox: str = "auto", seconds: float = SECONDS) -> None:
    """Speak MCP over stdin and stdout until the other side leaves.

    Raises:
        MissingPackage: `mcp` is not installed.
    """
    try:
        from mcp import MCPError, types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingPackage(
            "To serve a library needs the package mcp, version 2; install it with: pip install "
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
        instructions=TOLD,
        on_list_tools=listed,
        on_call_tool=called,
    )
    with kept_ready(sandbox, seconds) as pool:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="palaestra.agents.code.serving", description=__doc__)
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
