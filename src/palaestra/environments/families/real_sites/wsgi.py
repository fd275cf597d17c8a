"""Requests of pages as calls of a WSGI application (PEP 3333)."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from palaestra.browser.sites import Request, Response

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def respond(application: WsgiApplication, request: Request) -> Response:
    """Return what an application answers to a request."""
    started: list[Any] = []
    written: list[bytes] = []

    def start(
        status: str, headers: list[tuple[str, str]], problem: object = None
    ) -> Callable[[bytes], None]:
        started[:] = [status, headers]
        return written.append

    answered = application(_environment(request), start)
    try:
        rest = b"".join(answered)
    finally:
        if (close := getattr(answered, "close", None)) is not None:
            close()
    status, headers = started
    body = b"".join(written) + rest
    plain = {name.title(): value for name, value in headers}
    cookies = tuple(value for name, value in headers if name.title() == "Set-Cookie")
    for name in ("Set-Cookie", "Content-Length", "Cache-Control"):
        plain.pop(name, None)
    type = plain.pop("Content-Type", "application/octet-stream")
    return Response(body, type, int(status.partition(" ")[0]), plain, cookies=cookies)


def _environment(request: Request) -> dict[str, Any]:
    parts = urlsplit(request.address)
    name, _, port = request.host.partition(":")
    headers = {name.lower(): value for name, value in request.headers.items()}
    return {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(parts.path or "/").decode("latin-1"),
        "QUERY_STRING": parts.query,
        "SERVER_NAME": name,
        "SERVER_PORT": port or ("443" if parts.scheme == "https" else "80"),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.pop("content-type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "HTTP_HOST": request.host,
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()},
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": parts.scheme,
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
