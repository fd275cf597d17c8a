"""The viewer as a web application: pages, files and access control."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaestra.core.errors import PalaestraError
from palaestra.runtime.visible_text import visible
from palaestra.viewer.export import Export
from palaestra.viewer.pages import (
    curves_page,
    episode_page,
    episodes_page,
    evaluation_page,
    group_page,
    notes_page,
    run_page,
    runs_page,
    search_page,
    versus_page,
)
from palaestra.viewer.site import POLICY, REQUEST, Site

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would not send their origin
    "Cache-Control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
PAGES = (
    runs_page,
    curves_page,
    run_page,
    episodes_page,
    search_page,
    notes_page,
    episode_page,
    group_page,
    versus_page,
    evaluation_page,
)


def application(site: Site, token: str, names: frozenset[str] | None = LOOPBACK) -> Starlette:
    """Build the application of a site; a browser must present the token once, as `?token=…`.

    Args:
        site: the runs to show.
        token: a secret; a browser that presented it stores it as a cookie.
        names: the allowed host names of this machine; None: any.
    """
    pages = [route for page in PAGES for route in page.routes(site)]
    static = Mount("/static", StaticFiles(directory=STATIC))

    async def error_page(request: Request, error: Exception) -> Response:
        """Render an error as a page, or as text for the scripts' requests."""
        if isinstance(error, HTTPException):
            code, reason = error.status_code, error.detail
        else:
            code, reason = 409, str(error)
        if code == 404 and reason == "Not Found":
            reason = f"There is no page {request.url.path} here."
        if request.url.path.endswith(".json"):
            return PlainTextResponse(visible(reason), code)
        return site.page("error.html", code, title=f"error {code}", code=code, reason=reason)

    @asynccontextmanager
    async def prepared(_: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(site.prepare)
        yield

    return Starlette(
        routes=[*pages, static],
        lifespan=prepared,
        middleware=[Middleware(Guard, token=token, names=names), Middleware(Export)],
        exception_handlers={HTTPException: error_page, PalaestraError: error_page},
    )


def cookie(port: int) -> str:
    """Return the name of the token's cookie: it holds the port, as cookies are shared by ports."""
    return f"palaestra-{port}"


class Guard:
    """The middleware that authenticates requests and sets the security headers.

    Every user of this machine can reach the site, and so can foreign pages in the user's browser.
    So every response needs the token. The browser sends it for pages of this site and for links
    to it (SameSite=Lax), never for forms or scripts of another site; forms must also have the
    same origin (`pages/notes_page.py`). A foreign page whose host name resolves to this machine
    (DNS rebinding) sends a host name that is not allowed.
    """

    def __init__(self, app: ASGIApp, token: str, names: frozenset[str] | None) -> None:
        self._app, self._token, self._names = app, token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        request = Request(scope)
        response = self._rejection(request)
        REQUEST.set(request)
        await (response or self._app)(scope, receive, send_guarded)

    def _rejection(self, request: Request) -> Response | None:
        name, port = _host(request)
        if self._names is not None and name not in self._names:
            return PlainTextResponse(
                f"The host name '{visible(name)}' is not allowed; "
                "open the address that `palaestra view` printed.",
                403,
            )
        cookie_name = cookie(port)
        if self._is_token(request.query_params.get("token", "")):
            response = RedirectResponse(request.url.remove_query_params("token"))
            response.set_cookie(cookie_name, self._token, httponly=True, samesite="lax")
            return response
        if self._is_token(request.cookies.get(cookie_name, "")):
            return None
        return PlainTextResponse(
            "The token is missing; open the address that `palaestra view` printed, "
            "with its ?token=….",
            403,
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def _host(request: Request) -> tuple[str, int]:
    """Return host name and port of the request; an empty name if the header is malformed."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}")
        return host.hostname or "", host.port or 80
    except ValueError:
        return "", 80
