"""The listener: a web server in this event loop, which leaves signals to its host."""

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

HEADERS = 30.0  # seconds until the first request of a connection must have begun
GRACE = 1  # seconds for requests under way when the listener closes
TICK = 0.005  # seconds between looks at whether the server stands


class Listener:
    """One server at one address."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        """Nothing listens yet."""
        self._config = uvicorn.Config(
            app,
            http=_Patient,
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
        """Wait until it answers."""
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise RuntimeError("the gateway's server ended before it had begun")
            await asyncio.sleep(TICK)

    async def down(self) -> None:
        """Close; whoever is still connected is cut off after a moment."""
        self._server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._serving})
        self._socket.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises InputError where that cannot be."""
    if not 0 <= port <= 65535:
        raise InputError(f"There is no port {port}; give 0 (any free one) to 65535.")
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
    """Leaves Ctrl-C to whoever runs the event loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Patient(H11Protocol):
    """Hangs up on whoever connects and asks nothing."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEADERS, self._hang_up)

    def _hang_up(self) -> None:
        waiting: Any = self.cycle  # uvicorn does not say that it may be None
        if waiting is None and not self.transport.is_closing():
            self.transport.close()
