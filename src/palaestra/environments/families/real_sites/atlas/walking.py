"""Ways through the sites of a world, written down as gestures, with what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlencode, urljoin

from palaestra.browser.sites import Request
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import write_line
from palaestra.environments.families.apps.composing.goal import call
from palaestra.environments.families.real_sites.atlas.compiled_apps import CompiledSite
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import Deed
from palaestra.environments.families.web.pages.app_site import AppSite, Page
from palaestra.environments.families.web.reference import Walk


class _Answers:
    """The sites of a world as a walk asks them."""

    def __init__(self, world: SiteWorld) -> None:
        self._sites = world.by_host()
        self.by_host: dict[str, AppSite] = {
            site.application.host: site.pages
            for site in world.sites.values()
            if isinstance(site, CompiledSite)
        }

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        request = Request(method, url, body=body.encode())
        site = self._sites.get(request.host)
        if site is None:
            return None
        found = site(request)
        return Page(found.status, found.body.decode(), found.headers.get("Location", ""))


class SiteWalk(Walk):
    """Somebody who uses a world's sites from its first page on: links and forms, else addresses."""

    def __init__(self, world: SiteWorld) -> None:
        first = next(iter(world.sites.values())).application.address
        super().__init__(_Answers(world), first)

    def go(self, address: str) -> None:
        """Open a page, unless it is open."""
        if address != self.url:
            self._go(address)

    def leads(self, address: str) -> bool:
        """Return whether the open page is one, or has a link to it."""
        return address in (self.url, *(urljoin(self.url, link) for _, link in self.page.links))

    def send(self, action: str, fields: Mapping[str, str] = {}) -> None:
        """Fill in the form of the open page that is sent to an address, and send it."""
        forms = (form for form in self.page.forms if form.method == "post")
        form = next(form for form in forms if urljoin(self.url, form.action) == action)
        for name, text in fields.items():
            self._put(form.fields[name], text)
        self._click_button(form)
        self._show(action, urlencode(form.sent()))

    def change_saved(self, host: str, id: int, action: str, fields: Mapping[str, str] = {}) -> None:
        """Open an entry of what was saved at a site, and send a form of its page."""
        entry = f"{host}/saved/{id}"
        self.go(f"{host}/saved")
        self.go(entry)
        self.send(f"{entry}/{action}", fields)

    def mail(self, recipient: str, subject: str, body: str) -> None:
        """Send a mail."""
        self.make([call("mail.send_message", recipient=recipient, subject=subject, body=body)])

    def say(self, question: str) -> None:
        """Ask the person."""
        self.gestures.append(Gesture("say", text=question))


def deed(world: SiteWorld, way: Callable[[SiteWalk], object]) -> Deed:
    """Return a way as gestures, and the rows that it changes; the world stays as it was."""
    before = world.save()
    walk = SiteWalk(world)
    way(walk)
    changes = tuple(world.changes())
    world.load(before)
    return Deed(tuple(map(write_line, walk.gestures)), changes)
