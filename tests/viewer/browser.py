"""A real browser before a real server, and a look-out for what pages must not do."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from palaestra.viewer.app import application
from palaestra.viewer.site import Site
from tests.viewer.stores import TOKEN


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address at which the runs in `root` are shown, to those who enter with the token."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application(Site(root), TOKEN), log_level="warning")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips the test, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as tools:
        try:
            browser = tools.chromium.launch(executable_path=found, args=arguments)
        except playwright.Error as error:
            pytest.skip(f"no Chromium can be started: {str(error).splitlines()[0]}")
        try:
            yield browser
        finally:
            browser.close()


def entered(page: Any, address: str) -> Any:
    """The page, once its browser has shown the token, as `palaestra view` opens it."""
    page.goto(f"{address}/?token={TOKEN}")
    return page


class Watch:
    """The errors of a page, and the addresses that it requested."""

    def __init__(self, page: Any, address: str) -> None:
        self.complaints: list[str] = []
        page.on("console", self._replied)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self._asked(request.url, address))

    def _replied(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:")):
            self.complaints.append(f"asked {url}")
