"""The listener: a web server in this event loop, which leaves signals to the application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from palaestra.core.errors import InputError

HEADERS = 30.0  # seconds until a connection must have sent a request
GRACE = 1  # seconds for running requests when the listener closes
TICK = 0.005  # seconds between checks whether the server has started


class Listener:
    """One server at one address."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        """Bind the address and start the server."""
        self._config = uvicorn.Config(
            app,
            http=_IdleTimeoutProtocol,
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=GRACE,
        )
        self._server = _Server(self._config)
        self._socket = listening(host, port)
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self._socket.getsockname()[1]}"
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))

    async def up(self) -> None:
        """Wait until the server has started."""
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise RuntimeError("the gateway's server ended before it had begun")
            await asyncio.sleep(TICK)

    async def down(self) -> None:
        """Close the server; running requests are cancelled after `GRACE` seconds."""
        self._server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._serving})
        self._socket.close()


def listening(host: str, port: int) -> socket.socket:
    """Return a socket bound to that address; raises InputError if that fails."""
    if not 0 <= port <= 65535:
        raise InputError(f"The port {port} is out of range; give 0 (any free port) to 65535.")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"The gateway cannot listen at {host}:{port}: {error}. Choose another host or port."
        ) from None
    return found


class _Server(uvicorn.Server):
    """A server that leaves signals to the owner of the event loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _IdleTimeoutProtocol(H11Protocol):
    """A protocol that closes connections that send no request in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEADERS, self._hang_up)

    def _hang_up(self) -> None:
        waiting: Any = self.cycle  # may be None, against uvicorn's annotation
        if waiting is None and not self.transport.is_closing():
            self.transport.close()
