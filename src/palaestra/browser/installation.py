"""Which browser is used, and what to install where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from palaestra.core.errors import MissingSystemPart

VARIABLE = "PALAESTRA_BROWSER"
"""The environment variable that names another program of Chromium's family."""

PROGRAMS = (
    "/usr/lib/chromium/chromium-headless-shell",  # what Debian's script of that name starts
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
"""Alternatives, the leanest first."""

_INSTALL = (
    "install one with `apt install chromium-headless-shell` (Debian), `apt install chromium` "
    "(others with apt), `dnf install chromium-headless` (Fedora) or `pacman -S chromium` (Arch), "
    f"or name a program of its family in {VARIABLE}"
)


def browser_program(variables: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the browser's program.

    Raises:
        MissingSystemPart: there is none, or no bubblewrap to run it in.
    """
    if sys.platform != "linux":
        raise MissingSystemPart("The web needs Linux, where the browser runs without a network.")
    if shutil.which("bwrap") is None:
        raise MissingSystemPart(
            "The web needs bubblewrap, in which the browser has no network; install it with "
            "`apt install bubblewrap`."
        )
    named = variables.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingSystemPart(f"{VARIABLE} names '{named}', which is no program; {_INSTALL}.")
        return Path(found).resolve()
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return Path(found).resolve()
    raise MissingSystemPart(f"The web needs Chromium, which is not installed; {_INSTALL}.")
