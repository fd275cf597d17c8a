"""Rate-limited HTTP transport: each attempt of an SDK waits for its turn, and reports its result.

The SDKs decide when to retry. The `RateLimiter` decides when an attempt may go out, and learns from
every response. A response that no retry would change is marked with the header by which servers
tell the SDKs so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

from palaestra.models.remote.rate_limiter import LoadSignal, Ticket
from palaestra.models.remote.status_errors import (
    LONGEST_PAUSE,
    OVERLOADED,
    retry_after,
    retryable,
)

EVENTS = "text/event-stream"


@dataclass(slots=True)
class Attempts:
    """The attempts of one request so far."""

    ticket: Ticket
    made: int = 0
    pause: float = 0.0  # seconds that the last response asked to wait
    started: float = 0.0  # when the last attempt went out


_CURRENT: ContextVar[Attempts | None] = ContextVar("attempts", default=None)


@contextmanager
def attempts(ticket: Ticket) -> Iterator[Attempts]:
    """Count HTTP requests within the context as attempts of one request, queued by `ticket`."""
    counted = Attempts(ticket)
    token = _CURRENT.set(counted)
    try:
        yield counted
    finally:
        _CURRENT.reset(token)


class PacedTransport(httpx2.AsyncBaseTransport):
    """An HTTP transport that queues each attempt; requests outside `attempts` go out at once."""

    def __init__(self, timeout: float, withheld: Collection[str] = ()) -> None:
        """Open no connection yet.

        Args:
            timeout: seconds from the request to the last byte of the response; of a streamed
                response, to its first byte.
            withheld: headers that the SDK sets and that are removed.
        """
        self._timeout, self._withheld = timeout, withheld
        self._http = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name in self._withheld:
            request.headers.pop(name, None)
        current = _CURRENT.get()
        if current is None:
            return await self._http.handle_async_request(request)
        await current.ticket.turn()
        current.made, current.pause, current.started = current.made + 1, 0.0, time.monotonic()
        verdict, left_open = LoadSignal.NEITHER, False
        try:
            response = await self._answer(request)
            if response.is_success and response.headers.get("content-type", "").startswith(EVENTS):
                response.stream = _Events(response.stream, current.ticket)
                left_open = True
            elif response.is_success:
                verdict = LoadSignal.GOOD
            else:
                verdict = self._judge(response, current)
            return response
        except httpx2.TimeoutException:
            verdict = LoadSignal.OVERLOADED
            raise
        finally:
            if not left_open:
                current.ticket.leave(verdict, current.pause)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response, read to its end unless it is a stream of events."""
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._http.handle_async_request(request)
                if not response.headers.get("content-type", "").startswith(EVENTS):
                    await response.aread()
                return response
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer in time", request=request) from None

    def _judge(self, response: httpx2.Response, current: Attempts) -> LoadSignal:
        """Return what an error says about load; mark it if a retry would not help."""
        asked = retry_after(response.headers)
        again = retryable(response.status_code, response.text)
        if asked > LONGEST_PAUSE or not again:
            response.headers["x-should-retry"] = "false"
        overloaded = again and response.status_code in OVERLOADED
        current.pause = asked if overloaded and asked <= LONGEST_PAUSE else 0.0
        return LoadSignal.OVERLOADED if overloaded else LoadSignal.NEITHER


class _Events(httpx2.AsyncByteStream):
    """A stream of events; its attempt ends when it is closed."""

    def __init__(self, stream: object, ticket: Ticket) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)
        self._stream, self._ticket = stream, ticket
        self._verdict: LoadSignal | None = LoadSignal.GOOD

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx2.TimeoutException:
            self._verdict = self._verdict and LoadSignal.OVERLOADED
            raise
        except (Exception, asyncio.CancelledError):
            self._verdict = self._verdict and LoadSignal.NEITHER
            raise

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            verdict, self._verdict = self._verdict, None
            if verdict is not None:
                self._ticket.leave(verdict)
