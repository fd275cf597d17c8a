"""Cookies end by the world's clock, whichever day this machine's shows, and come back with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palaestra.browser import page_snapshot
from palaestra.browser.cookie_lifetimes import CookieLifetimes
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import BEGIN, WebSession
from palaestra.core.gestures.gesture_line import read_line
from tests.browser.needed import browser_missing

needs_browser = pytest.mark.skipif(bool(browser_missing()), reason=str(browser_missing()))
SHOP = "http://www.shop.example/cart/items"
TWO_DAYS = "Sat, 03 Jan 2026 00:00:00 GMT"  # of a world, which begins on 1 January 2026
SCRIPT = b"""<p>Page</p><script>
  const end = (days) => new Date(Date.now() + days * 864e5).toUTCString();
  if (location.search) for (const one of ["s=1; expires=" + end(1), "t=1; max-age=60; path=/",
    "u=1", "gone=1; expires=" + end(-1)]) document.cookie = one;
</script>"""


@pytest.mark.parametrize(
    ("text", "kept", "end"),
    [
        ("a=1; HttpOnly", "a=1; HttpOnly", None),
        ("a=1; Max-Age=60; Path=/", "a=1; Path=/", BEGIN + 60_000),
        (f"a=1; expires={TWO_DAYS}; Secure", "a=1; Secure", BEGIN + 172_800_000),
        (f"a=1; Max-Age=60; Expires={TWO_DAYS}", "a=1", BEGIN + 60_000),
        ("a=1; Expires=soon; Max-Age=long", "a=1", None),
        ("a=; Max-Age=0", "a=; Max-Age=0", None),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "a=1; Max-Age=0", None),
    ],
)
def test_the_browser_gets_a_cookie_without_its_end(text: str, kept: str, end: float | None) -> None:
    lifetimes = CookieLifetimes()
    assert lifetimes.without_end(text, SHOP, BEGIN) == kept
    assert [one[-1] for one in lifetimes.saved()] == ([] if end is None else [end])
    if end is not None:
        again = CookieLifetimes(lifetimes.saved())
        assert list(again.ended(end - 1)) == [] and len(list(again.ended(end))) == 1
        assert list(again.ended(end)) == []


def test_a_cookie_is_told_by_name_domain_and_path() -> None:
    lifetimes = CookieLifetimes()
    for text in ("a=1", "a=1; Path=/", "a=1; Domain=.Shop.example", "b=1; Domain=shop.example"):
        lifetimes.without_end(f"{text}; Max-Age=1", SHOP, 0.0)
    assert list(lifetimes.ended(1000.0)) == [
        ("a", "www.shop.example", "/cart"),
        ("a", "www.shop.example", "/"),
        ("a", ".shop.example", "/cart"),
        ("b", ".shop.example", "/cart"),
    ]
    lifetimes.without_end("a=1; Max-Age=1", SHOP, 0.0)
    lifetimes.without_end("a=2", SHOP, 0.0)  # set again, without an end
    assert list(lifetimes.ended(1000.0)) == []


class Jar:
    """A site that sets cookies at `/set` and shows which ones come back."""

    def __init__(self) -> None:
        self.got: set[str] = set()

    def __call__(self, request: Request) -> Response:
        self.got = {*request.headers.get("Cookie", "").split("; ")} - {""}
        cookies: tuple[str, ...] = ()
        if request.path == "/set":
            cookies = ("m=1; Max-Age=60", f"e=1; Expires={TWO_DAYS}", "n=1", "old=1; Max-Age=0")
        return Response(SCRIPT, cookies=cookies)


@pytest.fixture
def session() -> Iterator[WebSession]:
    opened = new_session((300, 200))
    yield opened
    opened.close()


@needs_browser
def test_cookies_of_sites_and_of_scripts_end_by_the_worlds_clock(session: WebSession) -> None:
    jar = Jar()

    def after(*lines: str) -> set[str]:
        for line in (*lines, "go 'http://shop.example/'"):
            do(session, read_line(line))
        return jar.got

    session.begin({"shop.example": jar}, "http://shop.example/set?script", 1)
    assert after() == {"m=1", "e=1", "n=1", "s=1", "t=1", "u=1"}
    assert {one["name"] for one in session.cookies()} == {"m", "e", "n", "s", "t", "u"}
    assert after("wait 70") == {"e=1", "n=1", "s=1", "u=1"}
    saved = page_snapshot.save(session)
    assert after("wait 86400") == {"e=1", "n=1", "u=1"}
    assert after("wait 86400") == {"n=1", "u=1"}
    assert page_snapshot.restore(session, {"shop.example": jar}, saved)
    assert after() == {"e=1", "n=1", "s=1", "u=1"}
    assert after("wait 86400") == {"e=1", "n=1", "u=1"}
