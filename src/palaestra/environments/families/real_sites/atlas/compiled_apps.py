"""Apps compiled from blueprints as sites among others: mail and contacts.

Each site has a world of apps of its own, with the same people in it: what one writes is not read by
the other. Its rows change only by calls of its APIs (`families/web/pages`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.changed_world import shortened, whole
from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.real_sites.application import BEGIN, Application, OpenSite
from palaestra.environments.families.real_sites.atlas.page_blocks import LINKS, asked
from palaestra.environments.families.web.pages.app_site import AppSite
from palaestra.environments.families.web.pages.look import Look


@cache
def suite() -> Suite:
    """Return the apps of the worlds."""
    return stock_suite(("contacts", "mail", "supervisor"))


class CompiledApp(Application):
    """One app as a site."""

    def open(self, seed: int) -> CompiledSite:
        return CompiledSite(self, seed)

    def respond(self, site: OpenSite, request: Request) -> Response:
        assert isinstance(site, CompiledSite)
        pages, fields = site.pages, asked(request)
        page = (
            pages.post(request.path, fields)
            if request.method == "POST"
            else pages.get(request.path, fields)
        )
        headers = {"Location": page.location} if page.location else {}
        return Response(page.html.encode(), status=page.status, headers=headers)


class Mail(CompiledApp):
    """Mail of the person, who is signed in."""

    name = "mail"


class Contacts(CompiledApp):
    """The person's address book."""

    name = "contacts"


class CompiledSite(OpenSite):
    """One world's copy of a compiled app."""

    def __init__(self, application: CompiledApp, seed: int) -> None:
        self.application, self.seed, self.now = application, seed, BEGIN
        self._open(_begun(seed))

    def _open(self, world: World) -> None:
        self.world, name = world, self.application.name
        look = Look.drawn(random.Random(f"look {self.seed} {name}"))
        self.pages = AppSite(world, suite().apps[name], MAIN, look, LINKS)

    @property
    def person(self) -> Row:
        """The person who is signed in."""
        return self.world.state.get("supervisor.person", MAIN) or {}

    @property
    def columns(self) -> Mapping[str, Mapping[str, Column]]:
        own = f"{self.application.name}."
        found = self.world.state.columns.items()
        return {table: columns for table, columns in found if table.startswith(own)}

    def rows(self, table: str, where: str = "", values: Sequence[object] = ()) -> list[Row]:
        return self.world.state.rows(table, where, values)

    def changes(self) -> list[Change]:
        return self.world.state.changes()

    def key(self) -> str:
        return self.world.key()

    def save(self) -> bytes:
        return shortened(self.world.snapshot(), _first_snapshot(self.seed))

    def load(self, saved: bytes) -> None:
        self.world.restore(whole(saved, _first_snapshot(self.seed)))

    def close(self) -> None:
        self.world.close()


def _begun(seed: int) -> World:
    """Return a world in which nothing has happened."""
    return World(suite(), world_template(suite(), "small", seed), START)


@lru_cache(8)
def _first_snapshot(seed: int) -> bytes:
    world = _begun(seed)
    found = world.snapshot()
    world.close()
    return found
