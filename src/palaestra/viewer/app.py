"""The viewer as a web application: its pages and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from palaestra.core.errors import PalaestraError
from palaestra.runtime.visible_text import visible
from palaestra.viewer.access import LOOPBACK, Guard
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
    screen_page,
    search_page,
    versus_page,
)
from palaestra.viewer.site import Site

STATIC = Path(__file__).parent / "static"
PAGES = (
    runs_page,
    curves_page,
    run_page,
    episodes_page,
    search_page,
    notes_page,
    episode_page,
    screen_page,
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
