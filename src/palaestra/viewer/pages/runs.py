"""The first page: which runs there are."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from palaestra.viewer.site import Site


def routes(site: Site) -> list[Route]:
    """The routes of this page."""

    def page(request: Request) -> HTMLResponse:
        return site.page("runs.html", title="runs", runs=site.records())

    return [Route("/", page)]
