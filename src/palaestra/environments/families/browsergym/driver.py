"""BrowserGym's environments, with playwright on the one thread on which its driver works.

Playwright's synchronous interface serves a single thread of a process, and none with an event loop;
all of BrowserGym's environments of a process therefore share one. Playwright looks for a browser of
its own version; where there is none, the browser of this machine is put in its place.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import playwright

from palaestra.browser.installation import browser_program
from palaestra.core.errors import EnvironmentFault, InputError, MissingPackage, UnknownName

FOLDER = "PLAYWRIGHT_BROWSERS_PATH"  # the variable that names the folder of playwright's browsers
PAGES = "MINIWOB_URL"  # the variable with the address of MiniWoB's pages
SUBSETS = ["chat", "infeas", "bid", "coord", "nav", "tab"]  # of actions: all that gestures can be


def on_thread(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call a function on the driver's thread, and return what it returns."""
    return _thread(os.getpid()).submit(function, *given, **named).result()


@cache
def check(name: str) -> None:
    """Raise MissingPackage or UnknownName unless BrowserGym has a task of that name.

    Args:
        name: without "browsergym/": `miniwob.click-test`, `webarena.12`, `openended`.
    """
    benchmark = name.partition(".")[0]
    if benchmark == "miniwob" and PAGES not in os.environ:
        found = find_spec("miniwob")
        if found is None or not found.submodule_search_locations:
            raise InputError(
                f"'browsergym/{name}' needs MiniWoB's pages; set {PAGES} to their address, or "
                "install them with: pip install --no-deps -r requirements/miniwob.txt."
            )
        os.environ[PAGES] = f"file://{found.submodule_search_locations[0]}/html/miniwob/"
    module = "browsergym.core" if benchmark == "openended" else f"browsergym.{benchmark}"
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"The environment 'browsergym/{name}' needs the Python package '{error.name}', which "
            f"is not installed; install it with: pip install browsergym-{benchmark}."
        ) from error
    known = [id.removeprefix("browsergym/") for id in gymnasium.registry]
    if name not in known:
        raise UnknownName("task of BrowserGym", name, [one for one in known if benchmark in one])


def opened(name: str) -> Any:
    """Make BrowserGym's environment of a name; call it on the driver's thread."""
    from browsergym.core.action.highlevel import HighLevelActionSet

    _find_browser()
    actions = HighLevelActionSet(subsets=SUBSETS, multiaction=True)
    return gymnasium.make(
        f"browsergym/{name}", disable_env_checker=True, action_mapping=actions.to_python_code
    )


def guarded(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call on the driver's thread; an error there is a fault of the environment."""
    from playwright.sync_api import Error

    try:
        return on_thread(function, *given, **named)
    except Error as error:
        raise EnvironmentFault("crash", f"BrowserGym raised {error}") from None


def _find_browser() -> None:
    """Let playwright find a browser: its own, or else that of this machine."""
    if FOLDER in os.environ or any(Path.home().glob(".cache/ms-playwright/chromium-*")):
        return
    listed = json.loads(
        Path(playwright.__file__).parent.joinpath("driver/package/browsers.json").read_text()
    )["browsers"]
    revision = next(one["revision"] for one in listed if one["name"] == "chromium")
    folder = tempfile.mkdtemp(prefix="palaestra-playwright-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder, f"chromium-{revision}", "chrome-linux", "chrome")
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {browser_program()} "$@"\n')
    program.chmod(0o755)
    os.environ[FOLDER] = folder


@cache
def _thread(process: int) -> ThreadPoolExecutor:
    """Return the driver's thread of a process; a forked one has none of its parent's."""
    return ThreadPoolExecutor(1, f"browsergym-{process}")
