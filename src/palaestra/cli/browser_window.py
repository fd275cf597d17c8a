"""Opening the desktop's browser without leaking the address to other users.

All users of a machine can see the arguments of programs (`ps`). So the browser gets the name of a
file that only this user may read, and the file redirects to the address.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

_PAGE = """<!doctype html><meta charset="utf-8"><title>palaestra view</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={0}">
<a href="{0}">palaestra view</a>
"""


def desktop() -> bool:
    """Return whether a browser with a window exists: named by `BROWSER`, or of a desktop."""
    if os.environ.get("BROWSER"):
        return True
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def opening(address: str) -> Iterator[None]:
    """Open `address` in the browser; the redirecting file exists as long as the block."""
    with TemporaryDirectory(prefix="palaestra-view-") as folder:  # only its owner can read it
        page = Path(folder) / "open.html"
        page.write_text(_PAGE.format(escape(address)), encoding="utf-8")
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
