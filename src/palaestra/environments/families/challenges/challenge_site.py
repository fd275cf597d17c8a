"""The site of one challenge: its page, what the page may know, and the code, once it is earned.

    GET  /, /VIEW          the page, and other pages that it opens (parts of the same file)
    GET  /download/NAME    a file, as an attachment
    POST /shown            what the page's script gets at once
    POST /ask              the answer to a question of the page
    POST /check            the code, or that this was not it; after `TRIES` wrong proofs, neither

Answers to POST cannot be opened as pages: an address that is typed is asked for by GET.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.challenges.challenge import Challenge, code_of

HOST = "challenge.example"  # reserved: no such host exists anywhere (RFC 2606)
HOME = f"http://{HOST}/"
TRIES = 5  # wrong proofs, so that guessing is no way
_VIEW = re.compile(r"^<!-- (/\S+) -->\n", re.MULTILINE)
_TYPES = {"challenge.js": "text/javascript; charset=utf-8", "challenge.css": "text/css"}


class ChallengeSite:
    """The site of a challenge in one task; it remembers wrong proofs and whether it was solved."""

    def __init__(self, name: str, seed: int, challenge: Challenge) -> None:
        self.challenge, self.code = challenge, code_of(name, seed)
        self.wrong = 0  # proofs so far that were none
        self.solved = False  # whether it gave the code away
        self._views = views(name)

    def __call__(self, request: Request) -> Response:
        path = request.path
        if request.method == "POST":
            return self._posted(path, request.body)
        if (name := path.removeprefix("/")) in _TYPES:
            return Response(_read(name).encode(), _TYPES[name], lasting=True)
        if (name := path.removeprefix("/download/")) in self.challenge.downloads:
            attached = {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(self.challenge.downloads[name], "text/plain", headers=attached)
        if path not in self._views:
            return Response(b"There is no such page.", "text/plain", 404)
        head = f"<header><p>{html.escape(self.challenge.goal)}</p>" if path == "/" else ""
        result = '<output id="result"></output></header>' if path == "/" else ""
        return Response(_FRAME.format(head + result, self._views[path]).encode())

    def _posted(self, path: str, body: bytes) -> Response:
        try:
            given = json.loads(body or b"null")
        except (ValueError, RecursionError):
            return Response(b"This is no JSON.", "text/plain", 400)
        if path == "/shown":
            return _json(dict(self.challenge.shown))
        if path == "/ask" and self.challenge.ask is not None:
            return _json(self.challenge.ask(given))
        if path == "/check":
            return _json({"said": self._checked(given)})
        return Response(b"There is nothing here.", "text/plain", 404)

    def _checked(self, given: Any) -> str:
        """Return what the page says of a proof."""
        if self.wrong >= TRIES:
            return "There are no tries left."
        if self.challenge.proof(given):
            self.solved = True
            return f"Completion code: {self.code}"
        self.wrong += 1
        return f"This is not it. {TRIES - self.wrong} of {TRIES} tries are left."


_FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Challenge</title>
<link rel="stylesheet" href="/challenge.css"><script src="/challenge.js"></script>
{}<main>{}</main></html>"""


@cache
def views(name: str) -> dict[str, str]:
    """Return the pages of a challenge by their path; they stand in one file."""
    first, *others = _VIEW.split(_read(f"{name}.html"))
    return {"/": first, **dict(zip(others[::2], others[1::2], strict=True))}


@cache
def _read(name: str) -> str:
    return files("palaestra.environments.families.challenges").joinpath("pages", name).read_text()


def _json(value: Any) -> Response:
    return Response(json.dumps(value).encode(), "application/json")
