"""A request of a page reaches a WSGI application whole, and so does its answer the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.validate import validator

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites import wsgi


def echo(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    size = int(environ["CONTENT_LENGTH"] or 0)
    body = environ["wsgi.input"].read(size)
    names = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_HOST", "HTTP_COOKIE")
    said = "|".join([*(environ.get(name, "") for name in names), body.decode()])
    headers = [
        ("Content-Type", "text/plain"),
        ("Set-Cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("Location", "/there"),
        ("Content-Length", "3"),
    ]
    start("302 Found", headers)
    return [said.encode("latin-1")]


def test_a_request_and_its_answer() -> None:
    request = Request("POST", "http://Shop.example/b%C3%BC?q=1", {"Cookie": "sid=7"}, b"title=x")
    found = wsgi.respond(echo, request)
    assert found == Response(
        "POST|/bü|q=1|shop.example|sid=7|title=x".encode("latin-1").replace(b"\xfc", b"\xc3\xbc"),
        "text/plain",
        302,
        {"Location": "/there"},
        cookies=("a=1; Path=/", "b=2"),
    )


def test_the_environment_is_that_of_the_standard() -> None:
    def plain(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"well"]

    found = wsgi.respond(validator(plain), Request("GET", "http://shop.example/"))
    assert (found.status, found.body) == (200, b"well")
