"""The judge: drives each promised function of a website in the browser, and says which hold.

A test begins on a fresh copy of the site, makes its operation by real gestures, and compares what
is shown with what is expected. An operation that cannot be made fails, with the reason. Buttons and
fields are found by their words, so any markup that shows the promised words can pass. After
WebGen-Bench (Lu et al. 2025), where a language model drives the site and says what it saw; here
operations and expectations are written down with the promises.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import TEXT
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.gestures.gesture_line import read_line
from palaestra.environments.families.websites.reference_site import FIRST, SitePlan
from palaestra.environments.families.websites.site_functions import FUNCTIONS, SiteTest

HOST = "site.example"  # reserved: no such host exists anywhere (RFC 2606)
HOME = f"http://{HOST}/"
SIZE = (900, 700)  # of the window, in pixels
BACKGROUND = "document.body ? getComputedStyle(document.body).backgroundColor : 'none'"
HUNG = "the page crashed or did not answer"
_TYPED = ("textbox", "searchbox", "combobox")  # whose texts are what was typed, not what is shown


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a function does what was promised."""

    function: str
    why: str = ""  # it does not; empty: it does

    @property
    def holds(self) -> bool:
        return not self.why


class SiteJudge:
    """A judge with a session of the browser, which is replaced when a site has crashed it."""

    def __init__(self) -> None:
        browser_program()  # raises before anything starts
        self._session: WebSession | None = None

    def findings(self, files: Mapping[str, bytes], plan: SitePlan) -> list[Finding]:
        """Return a finding for each promised function of a site, given as files by path.

        A site that crashes or hangs the page keeps none of the promises from there on.
        """
        found: list[Finding] = []
        for name in plan.functions:
            if found and found[-1].why == HUNG:
                found.append(Finding(name, HUNG))
                continue
            try:
                session = self._opened()
                session.begin({HOST: _site(files)}, HOME, seed=1)
                found.append(Finding(name, _failure(session, FUNCTIONS[name].test(plan.topic))))
            except EnvironmentFault:
                found.append(Finding(name, HUNG))
        return found

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> WebSession:
        if self._session is not None and self._session.failed:
            self.close()
        self._session = self._session or new_session(SIZE)
        return self._session


def _failure(session: WebSession, test: SiteTest) -> str:
    """Make a test's operation; return what differs from its expectation."""
    for line in test.operation:
        try:
            do(session, read_line(line))
        except InputError as error:
            return f"{line}: {error}"
    if session.tab.dialog is not None:
        return "a dialog is open"
    if test.colour:
        colour = session.run(BACKGROUND)
        return "" if colour == test.colour else f"the background is {colour}"
    return difference(shown_text(session.elements()), test)


def difference(said: str, test: SiteTest) -> str:
    """Return what of a page's text is not as a test expects it; empty if all is."""
    at = 0
    for text in test.shows:
        found = _find(text, said, at)
        if found < 0:
            missing = _find(text, said, 0) < 0
            return f"'{text}' is not shown" if missing else f"'{text}' is out of order"
        at = found + len(text)
    hidden = next((text for text in test.hides if _find(text, said, 0) >= 0), "")
    return f"'{hidden}' is shown" if hidden else ""


def _find(text: str, said: str, start: int) -> int:
    """Return where whole words stand from some place on; below 0: nowhere."""
    found = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)").search(said, start)
    return found.start() if found else -1


def shown_text(elements: Sequence[Element]) -> str:
    """Return what a page says, without what fields hold and what buttons are called."""
    silent = {one.id for one in elements if one.role in (*_TYPED, "button")}
    said = []
    for one in elements:  # a parent comes before its children
        if one.parent in silent:
            silent.add(one.id)
        elif one.role == TEXT:
            said.append(" ".join(one.name.split()))
    return " ".join(said)


def _site(files: Mapping[str, bytes]) -> Site:
    def answer(request: Request) -> Response:
        path = request.path.removeprefix("/") or FIRST
        if path not in files:
            return Response(b"There is no such page.", "text/plain", 404)
        type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        shown = f"{type}; charset=utf-8" if type.startswith("text/") else type
        return Response(files[path], shown)

    return answer
