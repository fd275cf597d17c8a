"""The sites of a world of apps: one for each app, by its host, and a start page that lists them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.web.pages.app_site import AppSite, Page, start_page
from palaestra.environments.families.web.pages.forms import human
from palaestra.environments.families.web.pages.look import Look

DOMAIN = ".example"  # reserved: no such host exists anywhere (RFC 2606)
START = f"home{DOMAIN}"


class Sites(Protocol):
    """What a browser visits: pages that answer by address, those of apps or any others."""

    @property
    def by_host(self) -> Mapping[str, object]:
        """The sites by their hosts."""
        ...

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        """Answer a request; None: no site has that host."""
        ...


@dataclass(frozen=True, slots=True)
class AppSites:
    """All sites of one world, for the person for whom the agent acts."""

    by_host: Mapping[str, AppSite]
    look: Look  # of the start page

    @classmethod
    def of(cls, world: World, seed: int, languages: Sequence[str]) -> AppSites:
        """Return the sites of a world; looks and languages are drawn by a seed."""
        apps = world.suite.apps
        links = tuple((human(name), f"http://{host_of(name)}/") for name in apps)

        def look(name: str) -> Look:
            return Look.drawn(random.Random(f"look {seed} {name}"), languages)

        sites = {
            host_of(name): AppSite(world, app, MAIN, look(name), links)
            for name, app in apps.items()
        }
        return cls(sites, look(""))

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        """Answer a request; None: no site has that host."""
        try:
            parts = urlsplit(url)
        except ValueError:  # it is no address at all
            return None
        if parts.netloc == START:
            return start_page(self.look, {h: site.app for h, site in self.by_host.items()})
        site = self.by_host.get(parts.netloc)
        if site is None or parts.scheme != "http":
            return None
        if method == "POST":
            return site.post(parts.path, dict(parse_qsl(body, keep_blank_values=True)))
        return site.get(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)))


def host_of(app: str) -> str:
    """Return the host of an app's site; hosts have no underscores."""
    return f"{app.replace('_', '-')}{DOMAIN}"
