"""A session with an MCP server, run in its own event loop for synchronous callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
import uuid
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TextIO

import psutil
from mcp import Client, MCPError, StdioServerParameters, stdio_client, types
from pydantic import ValidationError

from palaestra.core.errors import EnvironmentFault, InputError, MissingSystemPart
from palaestra.core.tool import Tool
from palaestra.environments.families.mcp.description import Description

MARK = "PALAESTRA_MCP_LINK"  # an environment variable that marks a server's process as ours
STARTING = 60.0  # seconds for a server to start and to list its tools
PATIENCE = 1.0  # seconds for a server to exit by itself before it is killed
SLACK = 5.0  # seconds beyond a call's time limit after which the event loop counts as hung
REFUSALS = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.INVALID_REQUEST)


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's result of a call."""

    text: str
    data: Any = None  # structured content
    failed: bool = False  # the tool ran and failed
    refused: bool = False  # the protocol refused the call, and nothing ran


@dataclass(frozen=True, slots=True)
class _Started:
    """A session that is ready, with what the server announced."""

    client: Client
    tools: tuple[Tool, ...]
    instructions: str


@dataclass(frozen=True, slots=True)
class _Runner:
    """An event loop with a session, run by a thread; holds no reference to its `Link`."""

    description: Description
    errors: TextIO  # the server's stderr
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=Future)
    started: Future[_Started] = field(default_factory=Future)

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if not self.started.done():
                self.started.set_exception(error)

    async def _main(self) -> None:
        over = asyncio.Event()
        self.begun.set_result((asyncio.get_running_loop(), over))
        session = asyncio.ensure_future(self._session(over))
        ending = asyncio.ensure_future(over.wait())
        await asyncio.wait((session, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not self.started.done():
            session.cancel()  # it is still starting
        await session

    async def _session(self, over: asyncio.Event) -> None:
        described = self.description
        server: Any = described.url
        if not server:
            variables = {**described.environment, MARK: self.token}
            parameters = StdioServerParameters(
                command=described.program,
                args=list(described.arguments),
                env=variables,
                cwd=described.folder,
            )
            server = stdio_client(parameters, errlog=self.errors)
        async with Client(server) as client:
            tools: list[Tool] = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += map(_tool, page.tools)
                cursor = page.next_cursor
                if cursor is None:
                    break
            self.started.set_result(_Started(client, tuple(tools), client.instructions or ""))
            await over.wait()

    def end(self, thread: threading.Thread) -> None:
        """End the session and the server; kill the server if it does not exit in time."""
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop, over = self.begun.result()
            loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE)
        if thread.is_alive():
            self._kill()
            thread.join(STARTING)
        self.errors.close()

    def _kill(self) -> None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.environ().get(MARK) == self.token:
                    for process in (*child.children(recursive=True), child):
                        with contextlib.suppress(psutil.Error):
                            process.kill()


class Link:
    """A session with the server of a description, open until `close`."""

    def __init__(self, description: Description) -> None:
        """Start the server, or connect to it.

        Raises:
            InputError: the program or the folder does not exist.
            EnvironmentFault: the server does not start, or does not follow the protocol.
        """
        if not description.folder.is_dir():
            raise InputError(
                f"'{description.folder}' is no folder to run an MCP server in; "
                "correct the description's `folder`."
            )
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._runner = _Runner(description, errors)
        self._thread = threading.Thread(target=self._runner.run, daemon=True, name="mcp")
        self._end = weakref.finalize(self, self._runner.end, self._thread)
        self._thread.start()
        self._limit = description.timeout
        self._loop, _ = self._runner.begun.result()
        try:
            self._started = self._runner.started.result(STARTING)
        except FileNotFoundError:
            self.close()
            raise MissingSystemPart(
                f"The MCP server '{description.command}' is not a program on the PATH; "
                "install it, or correct the description's `command`."
            ) from None
        except TimeoutError:
            raise self._fault("hang", "the server does not answer") from None
        except Exception as error:
            raise self._fault("crash", f"no session with the server: {_brief(error)}") from error
        self.tools = self._started.tools
        self.instructions = self._started.instructions

    def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Call a tool and return its result, which may be an error text.

        Raises:
            EnvironmentFault: the server died, does not answer, or violates the protocol; it is
                then closed.
        """
        if not self._thread.is_alive():
            raise self._fault("crash", f"{name}: the server is gone")
        asked = self._started.client.call_tool(name, arguments, read_timeout_seconds=self._limit)
        future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            result = future.result(self._limit + SLACK)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise self._fault("crash", f"{name}: the server is gone") from error
            if error.code == types.REQUEST_TIMEOUT:
                raise self._fault("hang", f"{name} took over {self._limit:g} s") from error
            return Reply(error.message, failed=True, refused=error.code in REFUSALS)
        except TimeoutError as error:
            raise self._fault("hang", f"{name} took over {self._limit:g} s") from error
        except (ValidationError, RuntimeError) as error:  # the reply violates protocol or schema
            raise self._fault("rubbish", f"{name}: {_brief(error)}") from error
        except Exception as error:
            raise self._fault("crash", f"{name}: {_brief(error)}") from error
        return Reply(_text(result), result.structured_content, result.is_error)

    def close(self) -> None:
        """End the session and the server; idempotent."""
        self._end()

    def _fault(self, kind: str, what: str) -> EnvironmentFault:
        """Close the session and return the fault, with the end of the server's stderr."""
        errors = self._runner.errors
        last = ""
        with contextlib.suppress(OSError, ValueError):
            errors.flush()
            errors.seek(0)
            last = errors.read()[-500:].strip()
        self.close()
        return EnvironmentFault(kind, what + (f"; its last output: {last}" if last else ""))


def _tool(found: types.Tool) -> Tool:
    return Tool(found.name, found.description or found.title or found.name, found.input_schema)


def _text(result: types.CallToolResult) -> str:
    """Return the text of a result; parts that are not text appear by name or type."""
    parts = []
    for block in result.content:
        match block:
            case types.TextContent():
                parts.append(block.text)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                parts.append(resource.text)
            case types.ResourceLink():
                parts.append(f"[{block.name}: {block.uri}]")
            case types.EmbeddedResource():
                parts.append(f"[{block.resource.mime_type or 'data'}: {block.resource.uri}]")
            case _:
                parts.append(f"[{block.mime_type}]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)


def _brief(error: BaseException) -> str:
    """Return the first leaf of an exception group in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
