"""One page of the package, as it is: that of a name, or one of a mixture."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.gesture import Gesture
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.solver import Page, plan


class SinglePage:
    """A page of the package; which one and its `goal` are known once it has begun."""

    size = pages.SIZE

    def __init__(self, name: str) -> None:
        self._name, self._page = name, ""
        self.goal = ""

    def begin(self, session: WebSession, seed: int) -> None:
        """Open the page in a session, or go on in its document, and begin its task."""
        page, before = pages.of_task(self._name, seed), self._page
        self._page = page
        if page == before and pages.can_begin_again(page) and session.can_begin_again():
            self.goal = str(session.again(seed, str(seed)))
            return
        sites, address = {pages.HOST: pages.site()}, pages.address(page)
        session.begin(sites, address, seed, watch=pages.STATE)
        session.hold(pages.program(pages.SECONDS))
        self.goal = str(session.run(pages.begin(seed, pages.SECONDS)))

    def plan(self, elements: Sequence[Element]) -> list[Gesture]:
        """Return the gestures that solve the page from its present state."""
        return plan(self._page, Page(self.goal, elements))
