"""A test server with a capacity limit, which fails on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

SOON = "retry-after-ms: 20\r\n"  # so that tests are faster than the SDKs' own waits
Mood = Literal["good", "error", "drop", "hang", "rubbish"]


@dataclass
class Crowded:
    """A server that answers `most` requests at once, each after `seconds`; others get 429."""

    most: int
    seconds: float = 0.01
    retry_after: str | None = None
    mood: Callable[[int], Mood] = lambda number: "good"  # of the request of that number
    words: Callable[[dict[str, Any]], str] = lambda request: f"seed {request['seed']}"
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of arrival, on the loop's clock
    refused: list[float] = field(default_factory=list)  # likewise
    under_way: int = 0
    peak: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the client hung up, or the test is over
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        self.requests.append(request)
        now = asyncio.get_running_loop().time()
        self.times.append(now)
        if self.under_way >= self.most:
            self.refused.append(now)
            pause = SOON if self.retry_after is None else f"Retry-After: {self.retry_after}\r\n"
            return _write(writer, "429 Too Many Requests", b"slow down", pause)
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        mood = self.mood(len(self.requests) - 1)
        try:
            await asyncio.sleep(60.0 if mood == "hang" else self.seconds)
        finally:
            self.under_way -= 1
        if mood == "error":
            return _write(writer, "500 Internal Server Error", b"broken", SOON)
        if mood == "drop":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"choices": [')
            return False
        answer = "rubbish" if mood == "rubbish" else json.dumps(_reply(self.words(request)))
        return _write(writer, "200 OK", answer.encode())


def _write(writer: asyncio.StreamWriter, status: str, body: bytes, headers: str = "") -> bool:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    writer.write(head.encode() + body)
    return True


def _reply(words: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": words}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    }


@asynccontextmanager
async def crowded(most: int, **options: Any) -> AsyncIterator[Crowded]:
    """Run the server in this event loop."""
    server = Crowded(most, **options)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
