"""Environments whose task is one page in a real browser."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.rare_capabilities import Elemental, Pictured
from palaestra.environments.base import Replayed


class PageTime:
    """An environment whose time is that of its pages: virtual, unless real time is asked for."""

    real_time = False

    def use_real_time(self) -> None:
        self.real_time = True


class BrowserPage(PageTime, Replayed, Pictured, Elemental, virtual_time=True):
    """An adapter with a session of the browser, kept from task to task unless it fails."""

    frames_on_demand = False  # see `new_session`

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        browser_program()  # raises before anything starts
        self._session: WebSession | None = None
        self._said = ""  # what stands above the page

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def elements(self) -> Sequence[Element]:
        return self._here().elements()

    def picture(self) -> bytes:
        return self._here().picture()

    def caption(self) -> str:
        return self._said

    def _working_session(self, size: tuple[int, int]) -> WebSession:
        """Return the session for the next task, a new one of that size if there is none."""
        if self._session is not None and self._session.failed:
            self.close()
        if self._session is None:
            on_demand = self.frames_on_demand and not self.real_time
            self._session = new_session(size, frames_on_demand=on_demand, real_time=self.real_time)
        return self._session

    def _here(self) -> WebSession:
        """Return the session of the current task; raises InputError before the first reset."""
        self._current()
        assert self._session is not None
        return self._session
