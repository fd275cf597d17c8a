"""The viewer as a web application: pages, files, and who may see them."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaestra.core.errors import PalaestraError
from palaestra.core.visible import visible
from palaestra.viewer.export import Export
from palaestra.viewer.pages import (
    curves,
    episode,
    episodes,
    evaluation,
    group,
    notes,
    run,
    runs,
    search,
    versus,
)
from palaestra.viewer.site import POLICY, REQUEST, Site

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, forms would not say where they come from
    "Cache-Control": "no-store",
}
COOKIE = "palaestra"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
PAGES = (runs, curves, run, episodes, search, notes, episode, group, versus, evaluation)


def application(site: Site, token: str | None = None) -> Starlette:
    """The pages of a site; with a token, only for those who show it once as `?token=…`."""
    pages = [route for page in PAGES for route in page.routes(site)]
    static = Mount("/static", StaticFiles(directory=STATIC))

    async def told(request: Request, error: Exception) -> Response:
        """What went wrong, in words."""
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
        middleware=[Middleware(Guard, token=token), Middleware(Export)],
        exception_handlers={HTTPException: told, PalaestraError: told},
    )


class Guard:
    """Keeps strangers out, and tells the browser what pages may do.

    Without a token only requests to this machine's own name are answered: a page elsewhere that
    lets its name point here (DNS rebinding) is not one.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

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
        answer = self._refusal(request)
        REQUEST.set(request)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        if self._token is None:
            name = request.headers.get("host", "").rpartition(":")[0]
            name = name or request.headers.get("host", "")
            return None if name in LOOPBACK else PlainTextResponse("Wrong host.", 403)
        shown = request.query_params.get("token", "")
        if hmac.compare_digest(shown.encode(), self._token.encode()):
            answer = RedirectResponse(request.url.remove_query_params("token"))
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            return answer
        kept = request.cookies.get(COOKIE, "")
        if hmac.compare_digest(kept.encode(), self._token.encode()):
            return None
        return PlainTextResponse("Open the address with its ?token=….", 403)
