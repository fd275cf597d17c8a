"""Pictures of the viewer's pages, as a real browser shows them.

    python scripts/viewer_pictures.py RUNS FOLDER NAME=ADDRESS…
    python scripts/viewer_pictures.py runs docs/images viewer-runs=/ 'viewer-search=/search?q=key'

RUNS is a folder of run folders; FOLDER/NAME.png shows the page at ADDRESS after its figures
have loaded. Needs `pip install 'palaestra[dev]'` and Chromium.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from pathlib import Path
from threading import Thread

import uvicorn
from playwright.sync_api import sync_playwright

from palaestra.viewer.app import application
from palaestra.viewer.site import Site

SIZE = {"width": 1280, "height": 800}
PATIENCE = 20_000  # milliseconds to wait for a page's figures


def main(runs: Path, folder: Path, pictures: list[str]) -> None:
    token = secrets.token_urlsafe()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(Site(runs), token), log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    found = shutil.which("chromium") or shutil.which("google-chrome")
    unwalled = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=found, args=unwalled)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        here = f"http://127.0.0.1:{listening.getsockname()[1]}"
        page.goto(f"{here}/?token={token}")
        for picture in pictures:
            name, _, address = picture.partition("=")
            page.goto(f"{here}{address}")
            page.wait_for_function(
                "() => !document.querySelector('[data-pending]')", timeout=PATIENCE
            )
            page.screenshot(path=folder / f"{name}.png")
            print(folder / f"{name}.png")
        browser.close()
    server.should_exit = True
    thread.join(10)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
