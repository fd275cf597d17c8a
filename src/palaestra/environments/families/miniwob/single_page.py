"""One page of the package, as it is."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.gesture import Gesture
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.solver import Page, plan


class SinglePage:
    """A page of the package; `goal` is known once it has begun."""

    size = pages.SIZE

    def __init__(self, name: str) -> None:
        self._name = name
        self.goal = ""

    def begin(self, session: WebSession, seed: int) -> None:
        """Open the page in a session and begin its task."""
        session.begin({pages.HOST: pages.site()}, pages.address(self._name), seed)
        self.goal = str(session.run(pages.begin(seed, pages.SECONDS)))

    def plan(self, elements: Sequence[Element]) -> list[Gesture]:
        """Return the gestures that solve the page from its present state."""
        return plan(self._name, Page(self.goal, elements))
