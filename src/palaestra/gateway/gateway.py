"""The gateway: one HTTP address for the open sessions of this process.

It listens only while there are open sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from palaestra.core.session import Session
from palaestra.gateway.app import KEEPALIVE, application
from palaestra.gateway.http_errors import HTTPError, episode_over
from palaestra.gateway.listener import Listener
from palaestra.gateway.request_limits import LIMITS, Limits
from palaestra.gateway.session_endpoint import SessionEndpoint

REMEMBERED = 10_000  # ended sessions whose programs still get status 410


class Gateway:
    """A server that gives programs access to sessions."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        temperature: bool = False,
        rewards: bool = True,
        public: str | None = None,
        limits: Limits = LIMITS,
        keepalive: float = KEEPALIVE,
    ) -> None:
        """Configure the address; port 0 is any free port.

        Args:
            host: a name or address of this machine.
            port: where to listen.
            temperature: whether a program's temperature is used.
            rewards: whether programs see rewards and outcomes.
            public: the address given to programs, if there is a proxy in front.
            limits: limits on requests.
            keepalive: seconds between keep-alive comments in a stream.
        """
        self.app = application(self, limits, keepalive)
        self._host, self._port = host, port
        self._temperature, self._rewards = temperature, rewards
        self._public = None if public is None else public.rstrip("/")
        self._endpoints: dict[str, SessionEndpoint] = {}
        self._ended: dict[str, _Ended] = {}
        self._listener: Listener | None = None
        self._closing: asyncio.Task[None] | None = None
        self._open_count = 0

    @contextlib.asynccontextmanager
    async def opened(self, session: Session) -> AsyncIterator[tuple[SessionEndpoint, str]]:
        """Open an endpoint to a session, yield it with its address, and close it afterwards."""
        endpoint = SessionEndpoint(
            secrets.token_hex(8),
            secrets.token_urlsafe(24),
            session,
            temperature=self._temperature,
            rewards=self._rewards,
        )
        self._open_count += 1
        try:
            address = await self._address()
            self._endpoints[endpoint.id] = endpoint
            yield endpoint, f"{self._public or address}/sessions/{endpoint.id}"
        finally:
            self._open_count -= 1
            await endpoint.close()
            self._forget(endpoint)
            if not self._open_count:
                await self._close()

    def endpoint(self, id: str, token: str) -> SessionEndpoint:
        """Return the endpoint of that id.

        Raises:
            HTTPError: the token is unknown (401) or another session's (403), the session has ended
                (410), or there is no such session (404).
        """
        endpoint = self._endpoints.get(id)
        if endpoint is not None and equal_tokens(endpoint.token, token):
            return endpoint
        ended = self._ended.get(id)
        if ended is not None and equal_tokens(ended.token, token):
            raise episode_over(ended.outcome)
        tokens = [one.token for one in self._endpoints.values()]
        tokens += [one.token for one in self._ended.values()]
        if not any(equal_tokens(one, token) for one in tokens):
            raise HTTPError(401, "The session's token is missing or wrong.")
        if endpoint is None and ended is None:
            raise HTTPError(404, f"There is no session '{id}'.")
        raise HTTPError(403, "This token belongs to another session.")

    # ── details ──────────────────────────────────────────────────────────────

    def _forget(self, endpoint: SessionEndpoint) -> None:
        if self._endpoints.pop(endpoint.id, None) is not None:
            outcome = str(endpoint.session.outcome or "it was given up")
            self._ended[endpoint.id] = _Ended(endpoint.token, outcome)
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def _address(self) -> str:
        while self._closing is not None:
            await asyncio.wait({self._closing})
        if self._listener is None:
            self._listener = Listener(self.app, self._host, self._port)
        listener = self._listener
        await listener.up()
        return listener.address

    async def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._closing = asyncio.ensure_future(listener.down())
        self._closing.add_done_callback(self._closed)
        await asyncio.shield(self._closing)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """The token and the outcome of an ended session."""

    token: str
    outcome: str


def equal_tokens(token: str, shown: str) -> bool:
    """Compare tokens in constant time."""
    return hmac.compare_digest(token.encode(), shown.encode("utf-8", "replace"))
