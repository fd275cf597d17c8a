"""The browser of this process, shared by its worlds: it starts with the first of them.

Worlds with frames on demand share another one, since a browser draws all of its pages in one way.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from palaestra.browser.browser_process import UPLOADS, BrowserProcess
from palaestra.browser.devtools import Connection, Pipe
from palaestra.browser.web_session import WebSession
from palaestra.core.errors import EnvironmentFault

IDLE = 8  # sessions without a world that are kept ready

_lock = threading.RLock()  # of the browser, its sessions without a world, and its leases
_shared: dict[bool, Browser] = {}  # by whether frames are drawn on demand


class Browser:
    """A running browser and its sessions: one context each, so that they share no data."""

    def __init__(self, frames_on_demand: bool) -> None:
        self.process = BrowserProcess(frames_on_demand)
        self.frames_on_demand = frames_on_demand  # if it can
        self.pipe = Pipe(self.process)
        self.leases = 0  # sessions that worlds have, or wait for
        self.drawing = threading.Lock()  # while one of its pages draws a frame on demand
        self._idle: list[WebSession] = []
        Connection(self.pipe).call(
            "Target.setAutoAttach",
            autoAttach=True,
            waitForDebuggerOnStart=True,
            flatten=True,
            filter=[{"type": "page"}, {"exclude": True}],
        )

    def session(self, size: tuple[int, int], real_time: bool = False) -> WebSession:
        """Return a session that no world has; raises EnvironmentFault if the browser ended."""
        with _lock:
            self.leases += 1
            kind = size, real_time
            found = next((one for one in self._idle if (one.size, one.real_time) == kind), None)
            if found is not None:
                self._idle.remove(found)
        try:
            return found or self._open(size, real_time)
        except BaseException:
            self.release()
            raise

    def _open(self, size: tuple[int, int], real_time: bool) -> WebSession:
        """Return a new session with one empty tab."""
        connection = Connection(self.pipe)
        made: dict[str, Any] = connection.call("Target.createBrowserContext")
        context = made["browserContextId"]
        connection.call(
            "Browser.setDownloadBehavior",
            behavior="deny", browserContextId=context, eventsEnabled=True,
        )  # fmt: skip
        self.pipe.own(context, connection)
        session = WebSession(self, connection, context, size, real_time)
        session.open_tab()
        return session

    def give_back(self, session: WebSession, usable: bool) -> None:
        """Take a session back; the last one ends the browser.

        Args:
            session: of a world that is closed.
            usable: whether another world may have it: nothing in it crashed or hangs.
        """
        with _lock:
            if self.release():
                return
            if usable and len(self._idle) < IDLE:
                self._idle.append(session)
                return
        self.dispose(session)

    def dispose(self, session: WebSession) -> None:
        """End all pages of a session: one that hangs would keep a processor busy."""
        self.pipe.disown(session.context)
        with contextlib.suppress(EnvironmentFault):
            session.connection.tell(
                "Target.disposeBrowserContext", browserContextId=session.context
            )

    def release(self) -> bool:
        """Give up a lease; return whether the browser has ended, as with the last one."""
        with _lock:
            self.leases -= 1
            if self.leases > 0 and self.process.alive:
                return False
            for kind in [kind for kind, browser in _shared.items() if browser is self]:
                del _shared[kind]
            if self.leases == 0:  # else others may be about to read its pipe
                self.process.close()
            return True

    @property
    def uploads(self) -> str:
        """The folder of uploads, as the browser sees it."""
        return UPLOADS


def new_session(
    size: tuple[int, int], *, frames_on_demand: bool = False, real_time: bool = False
) -> WebSession:
    """Return a session of this process's browser, which starts if it does not run.

    Args:
        size: width and height of the page in pixels.
        frames_on_demand: whether frames are drawn only where they are needed: for pictures, and
            when the pointer hovers, scrolls or drags. Else the browser draws what has changed, 60
            times a second. Only for pages that can be trusted: one that hangs while it draws holds
            up all others with frames on demand. They should not observe sizes or what is seen,
            since they hear of it as a frame is drawn.
        real_time: whether time in its pages passes as on a clock, also between gestures, so that
            videos play; equal gestures then need not lead to equal pages.

    Raises:
        MissingSystemPart: there is no browser.
        EnvironmentFault: it does not start.
    """
    with _lock:
        browser = _shared.get(frames_on_demand)
        if browser is None or not browser.process.alive:
            browser = _shared[frames_on_demand] = Browser(frames_on_demand)
        browser.leases += 1  # it stays until the session is there
    try:
        return browser.session(size, real_time)
    finally:
        browser.release()
