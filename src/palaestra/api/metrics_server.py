"""`--metrics`: serves the figures of a run while it runs, from a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from palaestra.api.openmetrics import CONTENT_TYPE, page
from palaestra.core.errors import InputError, PalaestraError
from palaestra.store.run_folder import RunFolder

LOOPBACK = "127.0.0.1"


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `PORT` or `HOST:PORT`; raise InputError if it is neither."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise InputError(
            f"--metrics {text} names no port; write PORT, or HOST:PORT, with 0 (any free port) to "
            "65535."
        )
    return host.strip("[]") or LOOPBACK, int(port)


@contextmanager
def serving(text: str | None, folder: Path) -> Iterator[str | None]:
    """Serve the figures of the run in `folder`, which may not exist yet; give the address.

    Args:
        text: `PORT` (of this machine alone) or `HOST:PORT`; None serves nothing.
        folder: of the run.

    Raises:
        InputError: nothing can listen there.
    """
    if text is None:
        yield None
        return
    host, port = address_of(text)
    try:
        server = _Server((host, port), folder)
    except OSError as error:
        raise InputError(
            f"Nothing can listen at {host}:{port} for --metrics: {error.strerror or error}. Choose "
            "another port."
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        self.folder = folder
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics."""

    server: _Server
    timeout = 30.0  # seconds for a request to arrive

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "The figures are at /metrics.\n")
            return
        try:
            with RunFolder.read(self.server.folder) as run:
                text = page(run.database)
        except PalaestraError as error:  # the run has not begun
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
        else:
            self._send(HTTPStatus.OK, CONTENT_TYPE, text)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
