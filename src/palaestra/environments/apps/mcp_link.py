"""A session with an MCP server, kept in an event loop of its own, for callers that have none."""

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
from palaestra.environments.apps.mcp_description import Description

MARK = "PALAESTRA_MCP_LINK"  # a variable by which a server's process is known as ours
STARTING = 60.0  # seconds for a server to start and to list its tools
PATIENCE = 1.0  # seconds for a server to end by itself; then it is killed
SLACK = 5.0  # seconds over the time limit of a call, after which the loop itself hangs
REFUSALS = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.INVALID_REQUEST)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server says to a call."""

    text: str
    data: Any = None  # its structured content
    failed: bool = False  # the tool ran and failed
    refused: bool = False  # the protocol refused the call, and nothing ran


@dataclass(frozen=True, slots=True)
class _Started:
    """What is known once a session stands."""

    client: Client
    tools: tuple[Tool, ...]
    instructions: str


@dataclass(frozen=True, slots=True)
class _Life:
    """A thread with an event loop and a session; it knows nothing of the link that holds it."""

    description: Description
    errors: TextIO  # the server's stderr
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=Future)
    started: Future[_Started] = field(default_factory=Future)

    def run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self.started.done():
                self.started.set_exception(error)

    async def _live(self) -> None:
        over = asyncio.Event()
        self.begun.set_result((asyncio.get_running_loop(), over))
        session = asyncio.ensure_future(self._session(over))
        ending = asyncio.ensure_future(over.wait())
        await asyncio.wait((session, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not self.started.done():
            session.cancel()  # it hangs while it starts
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
        """End the session and the server, one way or the other."""
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
    """A session with the server of a description, from its start to `close`."""

    def __init__(self, description: Description) -> None:
        """Start the server, or reach it.

        Raises:
            InputError: there is no such program, or no such folder.
            EnvironmentFault: it does not start, or does not speak the protocol.
        """
        if not description.folder.is_dir():
            raise InputError(f"There is no folder '{description.folder}' to run an MCP server in.")
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._life = _Life(description, errors)
        self._thread = threading.Thread(target=self._life.run, daemon=True, name="mcp")
        self._end = weakref.finalize(self, self._life.end, self._thread)
        self._thread.start()
        self._limit = description.timeout
        self._loop, _ = self._life.begun.result()
        try:
            self._started = self._life.started.result(STARTING)
        except FileNotFoundError:
            self.close()
            raise MissingSystemPart(
                f"The MCP server '{description.command}' is no program on the PATH; "
                "install it, or mend the description's command."
            ) from None
        except TimeoutError:
            raise self._fault("hang", "the server does not answer") from None
        except Exception as error:
            raise self._fault("crash", f"no session with the server: {_said(error)}") from error
        self.tools = self._started.tools
        self.instructions = self._started.instructions

    def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Call a tool; what it answers, be it an error in words.

        Raises:
            EnvironmentFault: the server is dead or mute, or speaks rubbish; it is then closed.
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
        except (ValidationError, RuntimeError) as error:  # not what the protocol or the tool says
            raise self._fault("rubbish", f"{name}: {_said(error)}") from error
        except Exception as error:
            raise self._fault("crash", f"{name}: {_said(error)}") from error
        return Reply(_text(result), result.structured_content, result.is_error)

    def close(self) -> None:
        """End the session and the server; twice does no harm."""
        self._end()

    def _fault(self, kind: str, what: str) -> EnvironmentFault:
        """The fault, with the server's last words; ends it."""
        errors = self._life.errors
        last = ""
        with contextlib.suppress(OSError, ValueError):
            errors.flush()
            errors.seek(0)
            last = errors.read()[-500:].strip()
        self.close()
        return EnvironmentFault(kind, what + (f"; its last words: {last}" if last else ""))


def _tool(found: types.Tool) -> Tool:
    return Tool(found.name, found.description or found.title or found.name, found.input_schema)


def _text(result: types.CallToolResult) -> str:
    """The words of a result; what is no text is named."""
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


def _said(error: BaseException) -> str:
    """The first real error in a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
