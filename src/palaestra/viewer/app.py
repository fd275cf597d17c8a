"""The viewer as a web application: pages, files, and who may see them."""

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
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
PAGES = (runs, curves, run, episodes, search, notes, episode, group, versus, evaluation)


def application(site: Site, token: str, names: frozenset[str] | None = LOOPBACK) -> Starlette:
    """The pages of a site, for those who show its token once, as `?token=…`.

    Args:
        site: what is shown.
        token: a secret; a browser that showed it keeps it as a cookie.
        names: the names of this machine by which it may be asked; None: any.
    """
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
        middleware=[Middleware(Guard, token=token, names=names), Middleware(Export)],
        exception_handlers={HTTPException: told, PalaestraError: told},
    )


def cookie(port: int) -> str:
    """The name under which a browser keeps the token: cookies do not tell ports apart."""
    return f"palaestra-{port}"


class Guard:
    """Keeps strangers out, and tells the browser what pages may do.

    Whoever uses this machine can reach the site, and so can pages from elsewhere in its user's
    browser. So every answer needs the token. The browser shows it for pages of this site, and
    where a link leads here (SameSite=Lax), never for forms or scripts of another site; forms must
    come from the very same origin besides (`pages/notes.py`). A page elsewhere that lets its own
    name point here (DNS rebinding) asks for a name that is none of this machine's.
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
        answer = self._refusal(request)
        REQUEST.set(request)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        name, port = _place(request)
        if self._names is not None and name not in self._names:
            return PlainTextResponse("This site is not known by that name.", 403)
        kept = cookie(port)
        if self._is_token(request.query_params.get("token", "")):
            answer = RedirectResponse(request.url.remove_query_params("token"))
            answer.set_cookie(kept, self._token, httponly=True, samesite="lax")
            return answer
        if self._is_token(request.cookies.get(kept, "")):
            return None
        return PlainTextResponse(
            "Open the address that `palaestra view` printed, with its ?token=…: "
            "this site is only for those who know it.",
            403,
        )

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode())


def _place(request: Request) -> tuple[str, int]:
    """The name and the port at which the site is asked; no name where it cannot be read."""
    try:
        asked = urlsplit(f"//{request.headers.get('host', '')}")
        return asked.hostname or "", asked.port or 80
    except ValueError:
        return "", 80
