"""Whether a browser can run here."""

from __future__ import annotations

from importlib.util import find_spec

from palaestra.browser.installation import browser_program
from palaestra.core.errors import MissingSystemPart
from tests.sandbox.kinds import reason


def browser_missing() -> str | None:
    """Return why no browser can run here: Chromium is not installed, or bubblewrap cannot run."""
    try:
        browser_program()
    except MissingSystemPart as missing:
        return str(missing)
    return reason("bubblewrap")


def without_miniwob() -> str | None:
    """Return why no page of MiniWoB++ can be used here."""
    return browser_missing() if find_spec("miniwob") else "needs requirements/miniwob.txt"
