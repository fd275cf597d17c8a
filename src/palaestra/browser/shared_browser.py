"""The browser of this process, shared by its worlds: it starts with the first of them."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from palaestra.browser.browser_process import UPLOADS, BrowserProcess
from palaestra.browser.devtools import Connection, Parameters
from palaestra.browser.tab import Tab
from palaestra.browser.web_session import WebSession
from palaestra.core.errors import EnvironmentFault

IDLE = 8  # sessions without a world that are kept ready

_lock = threading.RLock()
_shared: Browser | None = None


class Browser:
    """A running browser and its sessions: one context each, so that they share no data."""

    def __init__(self) -> None:
        self.process = BrowserProcess()
        self.connection = Connection(self.process)
        self.lock = threading.RLock()
        self._sessions: dict[str, WebSession] = {}  # by context
        self._idle: list[WebSession] = []
        self._leases = 0
        self.connection.listeners[""] = self._on
        self.connection.call(
            "Target.setAutoAttach",
            autoAttach=True,
            waitForDebuggerOnStart=True,
            flatten=True,
            filter=[{"type": "page"}, {"exclude": True}],
        )

    def _on(self, method: str, found: Parameters) -> None:
        if method != "Target.attachedToTarget":
            if method == "Browser.downloadWillBegin":
                for session in self._sessions.values():
                    session.note_download(found)
            elif method == "Target.detachedFromTarget":
                self._gone(found["sessionId"])
            return
        info, id = found["targetInfo"], found["sessionId"]
        of = self._sessions.get(info.get("browserContextId", ""))
        if of is not None:
            of.add(Tab(of, self.connection, id, info["targetId"]))
        self.connection.tell("Runtime.runIfWaitingForDebugger", id)

    def _gone(self, id: str) -> None:
        self.connection.listeners.pop(id, None)
        for session in self._sessions.values():
            session.remove(id)

    def session(self, size: tuple[int, int]) -> WebSession:
        """Return a session with one empty tab; raises EnvironmentFault if the browser ended."""
        with self.lock:
            self._leases += 1
            for session in self._idle:
                if session.size == size:
                    self._idle.remove(session)
                    return session
            made: dict[str, Any] = self.connection.call("Target.createBrowserContext")
            context = made["browserContextId"]
            self.connection.call(
                "Browser.setDownloadBehavior",
                behavior="deny", browserContextId=context, eventsEnabled=True,
            )  # fmt: skip
            session = WebSession(self, context, size)
            self._sessions[context] = session
            session.open_tab()
            return session

    def give_back(self, session: WebSession, usable: bool) -> None:
        """Take a session back; the last one ends the browser.

        Args:
            session: of a world that is closed.
            usable: whether another world may have it: nothing in it crashed or hangs.
        """
        with _lock, self.lock:
            self._leases -= 1
            if self._leases == 0 or not self.process.alive:
                _forget(self)
                self.process.close()
            elif usable and len(self._idle) < IDLE:
                self._idle.append(session)
            else:
                self._sessions.pop(session.context, None)
                with contextlib.suppress(EnvironmentFault):
                    self.connection.tell(
                        "Target.disposeBrowserContext", browserContextId=session.context
                    )

    @property
    def uploads(self) -> str:
        """The folder of uploads, as the browser sees it."""
        return UPLOADS


def new_session(size: tuple[int, int]) -> WebSession:
    """Return a session of this process's browser, which starts if it does not run.

    Args:
        size: width and height of the page in pixels.

    Raises:
        MissingSystemPart: there is no browser.
        EnvironmentFault: it does not start.
    """
    global _shared
    with _lock:
        if _shared is None or not _shared.process.alive:
            _shared = Browser()
        return _shared.session(size)


def _forget(browser: Browser) -> None:
    global _shared
    if _shared is browser:
        _shared = None
