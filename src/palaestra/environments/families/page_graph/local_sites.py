"""The sites of a world: those of a person's apps, or the encyclopedia of the atlas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from palaestra.browser.sites import Site
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.drawing import new_apps
from palaestra.environments.families.apps.population import START as TIME
from palaestra.environments.families.apps.population import populate, world_template
from palaestra.environments.families.apps.setting import core
from palaestra.environments.families.apps.stock import stock_app
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.real_sites.site_world import SiteWorld, application
from palaestra.environments.families.web.app_sites import START, AppSites
from palaestra.environments.families.web.picture_browser import sites_by_host

REAL = ("encyclopedia",)
NAMES = ("apps", "apps-new", *REAL)


@dataclass(frozen=True)
class LocalSites:
    """Sites that an agent uses, and where it begins."""

    by_host: Mapping[str, Site]
    start: str
    cookies: Mapping[str, Mapping[str, str]]
    is_changed: Callable[[], bool]  # whether any row differs from the beginning
    close: Callable[[], None]


def check(name: str) -> None:
    """Raise MissingPackage if a world's application is not installed."""
    if name in REAL:
        application(name)


def opened(name: str, seed: int) -> LocalSites:
    """Open a world in which nothing has happened.

    Args:
        name: one of `NAMES`.
        seed: of what the sites hold, and of how those of apps look.
    """
    if name in REAL:
        sites = SiteWorld((name,), seed)
        start = application(name).address
        return LocalSites(
            sites.by_host(), start, sites.cookies(), lambda: bool(sites.changes()), sites.close
        )
    if name == "apps":
        suite = core().suite
        template = world_template(suite, "small", seed)
    else:
        suite = Suite.of([stock_app("supervisor"), *new_apps(seed)])
        template = populate(suite, "small", seed)
    world = World(suite, template, TIME)
    hosts = sites_by_host(AppSites.of(world, seed, ("en",)))
    return LocalSites(
        hosts, f"http://{START}/", {}, lambda: bool(world.state.changes()), world.close
    )
