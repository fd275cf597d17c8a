"""The body of a request that a page sends, with the files of its forms.

The browser tells a body in parts, and leaves out the bytes of files; those are the world's, by
name. It draws a boundary between the fields of a form; here it is always the same, so that equal
forms give equal requests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from palaestra.browser.sites import Request

BOUNDARY = b"----palaestra-form-field"
_DRAWN = re.compile(r"boundary=(----WebKitFormBoundary\w+)$")
_FILE = re.compile(rb'filename="([^"\r\n]*)"\r\n(?:[^\r\n]+\r\n)*\r\n\Z')  # before its bytes


def request_of(asked: Mapping[str, Any], files: Mapping[str, bytes]) -> Request:
    """Return a request as it reaches a site.

    Args:
        asked: what the browser tells about it (`Network.Request` of the DevTools protocol).
        files: those that pages may upload, by name.
    """
    body = _joined(asked.get("postDataEntries", ()), files)
    request = Request(asked["method"], asked["url"], asked["headers"], body)
    name = next((one for one in request.headers if one.lower() == "content-type"), "")
    drawn = _DRAWN.search(request.headers[name]) if name else None
    if drawn is None or BOUNDARY in body:
        return request
    type = request.headers[name].replace(drawn[1], BOUNDARY.decode())
    return replace(
        request,
        headers={**request.headers, name: type},
        body=body.replace(drawn[1].encode(), BOUNDARY),
    )


def _joined(parts: Sequence[Mapping[str, str]], files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of all parts; a part without any is a file, which the one before names."""
    body = b""
    for part in parts:
        if "bytes" in part:
            body += base64.b64decode(part["bytes"])
        elif (named := _FILE.search(body)) is not None:
            body += _file(named[1].decode(errors="replace"), files)
    return body


def _file(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return a file's bytes; the browser names it without its folder, and with `"` escaped."""
    plain = name.replace("%22", '"')
    found = (content for path, content in files.items() if PurePosixPath(path).name == plain)
    return next(found, b"")
