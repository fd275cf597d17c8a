"""`palaestra view`: who may see what it shows, and how its own user's browser comes to know."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from tests.chosen import mostly_slow

ADDRESS = re.compile(r"palaestra view: (http://\S+/)(\?token=\S+) \(Ctrl-C ends it\)")
BROWSER = """#!/bin/sh
echo "$@" > "$SEEN/arguments.part"
cp "$(echo "$1" | sed 's,^file://,,')" "$SEEN/page"
ls -ld "$(dirname "$(echo "$1" | sed 's,^file://,,')")" > "$SEEN/folder"
mv "$SEEN/arguments.part" "$SEEN/arguments"
"""


@contextmanager
def viewed(root: Path, *arguments: str, **environment: str) -> Iterator[tuple[str, str]]:
    """The address that `palaestra view` prints, and its query."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(
        [sys.executable, "-m", "palaestra", "view", "--port", "0", *arguments],
        env={**inherited, "PALAESTRA_RUNS": str(root), **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            printed = ADDRESS.fullmatch(line.strip())
            assert printed is not None, line
            yield printed[1], printed[2]
        finally:
            process.terminate()


@pytest.mark.parametrize(
    "host", mostly_slow([[], ["--host", "localhost"], ["--host", "0.0.0.0"]], [])
)
def test_the_printed_address_opens_the_site_and_no_other_does(
    tmp_path: Path, host: list[str]
) -> None:
    with viewed(tmp_path, "--no-browser", *host) as (address, query), httpx.Client() as client:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert client.get(address).status_code == 403
        assert client.post(f"{address}run/x/notes", data={"text": "x"}).status_code == 403
        assert client.get(address + query, follow_redirects=True).status_code == 200
        assert client.get(address).status_code == 200  # the cookie is kept
        assert len(query.removeprefix("?token=")) >= 32


@pytest.mark.slow
def test_every_start_has_another_token(tmp_path: Path) -> None:
    with viewed(tmp_path, "--no-browser") as (_, one), viewed(tmp_path, "--no-browser") as (_, two):
        assert one != two


def test_the_browser_is_opened_with_the_token_and_its_arguments_do_not_hold_it(
    tmp_path: Path,
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    with viewed(tmp_path, BROWSER=str(browser), SEEN=str(tmp_path)) as (address, query):
        for _ in range(600):
            if (tmp_path / "arguments").exists():
                break
            time.sleep(0.1)
        asked = urlsplit((tmp_path / "arguments").read_text().strip())
        assert asked.scheme == "file" and query not in (tmp_path / "arguments").read_text()
        assert (tmp_path / "folder").read_text().startswith("drwx------")
        led = re.search(r'content="0;url=([^"]+)"', (tmp_path / "page").read_text())
        assert led is not None and unescape(led[1]) == address + query
        assert httpx.get(unescape(led[1]), follow_redirects=False).status_code == 307
        assert Path(unquote(asked.path)).exists()
