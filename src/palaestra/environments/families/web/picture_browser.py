"""A real browser with the sites of a world of apps: Chromium, its mouse and its keyboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.browser import page_snapshot
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.gesture import Gesture
from palaestra.environments.families.web.app_sites import START, Sites

SIZE = (1000, 700)  # of the window, in pixels


class PictureBrowser:
    """A session of the browser, begun at an address of the sites."""

    def __init__(self, session: WebSession, sites: Mapping[str, Site], url: str, seed: int) -> None:
        """Begin; what the session held before is forgotten.

        Raises:
            EnvironmentFault: the browser crashed or does not answer.
        """
        self._session = session
        session.begin(sites, url, seed)

    @classmethod
    def restored(
        cls, session: WebSession, sites: Mapping[str, Site], saved: bytes
    ) -> PictureBrowser | None:
        """Return a window as it was saved; None: it did not come back as it was."""
        if not page_snapshot.restore(session, sites, saved):
            return None
        found = cls.__new__(cls)
        found._session = session
        return found

    def save(self) -> bytes:
        """Return a snapshot of the window; empty where only its gestures lead back."""
        return page_snapshot.save(self._session)

    @property
    def url(self) -> str:
        return self._session.tab.address()

    def elements(self) -> Sequence[Element]:
        return self._session.elements()

    def state(self) -> tuple[object, ...]:
        """Return what there is beside the sites, as far as it can be seen."""
        session = self._session
        shown = session.elements(), session.pointer, session.now, session.current
        return session.tab.history(), shown, session.clipboard

    def do(self, gesture: Gesture) -> None:
        """Do a gesture; raises InputError if it cannot be done here."""
        do(self._session, gesture)

    def picture(self) -> bytes:
        """Return what the window shows, as a PNG."""
        return self._session.picture()


def sites_by_host(sites: Sites) -> dict[str, Site]:
    """Return who answers the browser's requests, by host."""
    return dict.fromkeys((START, *sites.by_host), _site(sites))


def _site(sites: Sites) -> Site:
    def answer(request: Request) -> Response:
        page = sites.respond(request.method, request.address, request.body.decode())
        if page is None:
            return Response(b"There is no such page.", "text/plain", 404)
        headers = {"Location": page.location} if page.location else {}
        return Response(page.html.encode(), status=page.status, headers=headers)

    return answer
