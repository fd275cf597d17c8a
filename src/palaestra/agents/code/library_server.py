"""A library of functions as an MCP server: other agents can call them as tools.

Source: Qiu et al. 2025 (Alita: capabilities that an agent wrote become MCP tools); Model Context
Protocol (package `mcp`), over stdio. Start it with `palaestra agents library FILE --serve`, or with
`python -m palaestra.agents.code.library_server FILE`.

Each call runs in a fresh sandbox (`sandbox.function_calls`). The library is read at each listing
and each call, so new functions are served at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from palaestra import __version__
from palaestra.core.errors import MissingPackage, PalaestraError
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall
from palaestra.sandbox.function_calls import SECONDS, call, warm_pool
from palaestra.sandbox.function_library import Library
from palaestra.sandbox.function_schema import tool_of

INSTRUCTIONS = "Functions that an agent wrote, tested and kept; each runs in a sandbox."


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
