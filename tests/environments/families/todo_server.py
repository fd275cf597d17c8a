"""A to-do list as an MCP server, for tests: state, failing tools, and others that misbehave."""

import os
import sys
import time

from mcp import MCPError
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import INVALID_PARAMS
from pydantic import BaseModel

server = MCPServer("todo", instructions="You keep a to-do list.")
items: list[str] = []
done: list[str] = []


class Sheet(BaseModel):
    """The whole list."""

    open: list[str]
    done: list[str]


@server.tool()
def add(text: str) -> str:
    """Put an entry on the list."""
    items.append(text)
    return f"{len(items)} open"


@server.tool()
def finish(number: int) -> str:
    """Tick off an entry by its number, which begins at 1."""
    if not 0 < number <= len(items):
        raise ToolError(f"there is no entry {number}")
    done.append(items.pop(number - 1))
    return f"finished: {done[-1]}"


@server.tool()
def show() -> list[str]:
    """The open entries."""
    return items


@server.tool()
def sheet() -> Sheet:
    """The open and the finished entries."""
    return Sheet(open=items, done=done)


@server.tool()
def clear(entries: list[str] | None = None) -> str:
    """Begin with these entries, and with nothing finished."""
    items[:], done[:] = entries or [], []
    return "cleared"


if "misbehaving" in sys.argv:

    @server.tool()
    def die() -> str:
        """End the server."""
        print("I am about to die", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool()
    def sleep(seconds: float) -> str:
        """Do nothing for a while."""
        time.sleep(seconds)
        return "awake"

    @server.tool()
    def refuse() -> str:
        """Fail as the protocol does, not as a tool."""
        raise MCPError(INVALID_PARAMS, "not like this")

    @server.tool()
    def picture() -> Image:
        """Draw."""
        return Image(data=b"no picture", format="png")

    @server.tool()
    def whoami() -> str:
        """The number of the server's process."""
        return str(os.getpid())


if __name__ == "__main__":
    if "stillborn" in sys.argv:
        sys.exit("I was never meant to be")
    if "http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[-1]))
    else:
        server.run("stdio")
        if "stubborn" in sys.argv:  # does not end with its input
            while True:
                time.sleep(60)
