"""The bytes of files come into the body of a form, and its boundary is always the same."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palaestra.browser.form_body import BOUNDARY, request_of

DRAWN = b"----WebKitFormBoundary2zbxCaSEJfG75oZu"
TYPE = "multipart/form-data; boundary="


def entry(content: bytes) -> dict[str, str]:
    return {"bytes": base64.b64encode(content).decode()}


def asked(*parts: dict[str, str], type: str = TYPE + DRAWN.decode()) -> dict[str, Any]:
    headers = {"Content-Type": type}
    return {
        "method": "POST",
        "url": "http://shop/",
        "headers": headers,
        "postDataEntries": list(parts),
    }


def field(name: bytes) -> bytes:
    return b'--%b\r\nContent-Disposition: form-data; name="%b"' % (DRAWN, name)


@given(st.binary(max_size=30).filter(lambda one: DRAWN not in one and BOUNDARY not in one))
def test_a_file_stands_where_its_bytes_are_missing(content: bytes) -> None:
    head = field(b"file") + b'; filename="a %22b%22.txt"\r\nContent-Type: text/plain\r\n\r\n'
    tail = b"\r\n--%b--\r\n" % DRAWN
    files = {"other.txt": b"no", 'folder/a "b".txt': content}
    found = request_of(asked(entry(head), {}, entry(tail)), files)
    assert found.body == (head + content + tail).replace(DRAWN, BOUNDARY)
    assert found.headers["Content-Type"] == TYPE + BOUNDARY.decode()


def test_what_is_no_file_of_the_world_stays_empty() -> None:
    head = field(b"x") + b'; filename="made.txt"\r\n\r\n'
    assert request_of(asked(entry(head), {}), {}).body == head.replace(DRAWN, BOUNDARY)


def test_other_bodies_stay_as_they_are() -> None:
    plain = asked(entry(b"a=1&b="), entry(DRAWN), type="application/x-www-form-urlencoded")
    assert request_of(plain, {}).body == b"a=1&b=" + DRAWN
    own = asked(entry(DRAWN + BOUNDARY))
    assert request_of(own, {}).body == DRAWN + BOUNDARY
    assert request_of({"method": "GET", "url": "http://shop/", "headers": {}}, {}).body == b""
