"""`palaestra app --web`: the pages of an app on this machine, with rows drawn by a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from palaestra.core.errors import MissingPackage

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from palaestra.environments.families.apps.app import App, Suite
    from palaestra.environments.families.web.pages.app_site import AppSite

HOST = "127.0.0.1"


def serve_pages(app: App, suite: Suite, seed: int, port: int) -> None:
    """Serve an app's pages until Ctrl-C; what is changed on them is lost then.

    Args:
        app: whose pages.
        suite: the app, and those to whose rows its own refer.
        seed: draws the rows and the look.
        port: of the address; 0: any free one.

    Raises:
        MissingPackage: a package that pages or a server need is missing.
        InputError: nothing can listen at the port.
    """
    try:
        import jinja2  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingPackage(
            f"The pages of an app need the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[viewer]'."
        ) from error
    from palaestra.cli.view_command import listening

    application = _application(_site(app, suite, seed))
    socket = listening(HOST, port)
    print(f"http://{HOST}:{socket.getsockname()[1]}/", flush=True)
    config = uvicorn.Config(application, log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[socket])


def _site(app: App, suite: Suite, seed: int) -> AppSite:
    from palaestra.environments.families.apps.composing.goal import MAIN
    from palaestra.environments.families.apps.population import START, populate
    from palaestra.environments.families.apps.world import World
    from palaestra.environments.families.web.pages.app_site import AppSite
    from palaestra.environments.families.web.pages.look import Look

    world = World(suite, populate(suite, "small", seed), START)
    return AppSite(world, app, MAIN, Look.drawn(random.Random(f"look {seed}")), ())


def _application(site: AppSite) -> Starlette:
    """Return the site as an application of ASGI."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        path = request.url.path
        if request.method == "POST":
            sent = parse_qsl((await request.body()).decode(), keep_blank_values=True)
            page = site.post(path, dict(sent))
        else:
            page = site.get(path, dict(request.query_params))
        if page.location:
            return RedirectResponse(page.location, page.status)
        return HTMLResponse(page.html, page.status)

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
