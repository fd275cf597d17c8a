"""A page comes back with its history, alone or by its own gestures, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palaestra.browser import page_snapshot
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import WebSession
from palaestra.core.gestures.gesture_line import read_line
from tests.browser.needed import browser_missing

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

SIZE = (400, 300)
PAGES = {
    "/": "<h1>Home</h1><form method=post action=/add><button>Add</button></form>",
    "/menu": "<button onclick='items.hidden = !items.hidden'>Menu</button>"
    "<ul id=items hidden><li>Open</ul><a href='#end'>End</a> <a href=/>Away</a>"
    "<p style='height: 900px'></p><h2 id=end>The end</h2>",
    "/leaving": "<h1>Leaving</h1><script>addEventListener('pagehide', () => {"
    "localStorage.late = sessionStorage.late = 1; document.cookie = 'late=1';"
    "navigator.sendBeacon('/beacon') })</script>",
    "/written": "<button onclick=\"history.pushState(0, '', '/other')\">Write</button>",
    "/fields": "<label id=whole>Name <input></label>"
    "<button onclick='whole.hidden = !whole.hidden'>Hide</button>",
}


def site(request: Request) -> Response:
    if request.path == "/add":
        return Response(b"", status=303, headers={"Location": "/"})
    return Response(PAGES.get(request.path, "").encode())


SITES = {"shop": site}


@pytest.fixture(scope="module")
def shared() -> Iterator[WebSession]:
    session = new_session(SIZE)
    yield session
    session.close()


@pytest.fixture(scope="module")
def other() -> Iterator[WebSession]:
    session = new_session(SIZE)
    yield session
    session.close()


def act(session: WebSession, *lines: str) -> None:
    for line in lines:
        do(session, read_line(line))
        session.elements()  # as an agent sees them


def test_two_pages_of_one_address_have_two_entries(shared: WebSession, other: WebSession) -> None:
    shared.begin(SITES, "http://shop/", 1)
    act(shared, "click 'Add'", "click 'Add'")
    history = shared.tab.history()
    assert history == (["http://shop/"] * 3, 2)
    saved = page_snapshot.save(shared)
    assert page_snapshot.restore(other, SITES, saved)
    assert other.tab.history() == history
    assert (other.chance, other.now) == (shared.chance, shared.now)
    assert not other.refused


def test_a_menu_that_a_script_opened_comes_back_by_the_gestures_since_the_page_was_loaded(
    shared: WebSession, other: WebSession
) -> None:
    shared.begin(SITES, "http://shop/", 1)
    act(shared, "go 'http://shop/menu'")
    arrived = page_snapshot.arrival(shared)
    act(shared, "click 'Menu'")
    saved = page_snapshot.save(shared, arrived)
    assert not page_snapshot.restore(other, SITES, saved)
    assert page_snapshot.revisit(other, SITES, saved, arrived)
    assert not page_snapshot.is_back(other, saved)
    act(other, "click 'Menu'")
    assert page_snapshot.is_back(other, saved)
    assert other.elements() == shared.elements()
    act(other, "back")
    assert other.tab.address() == "http://shop/"


def test_a_place_within_a_page_comes_back_and_one_further_back_does_not(
    shared: WebSession, other: WebSession
) -> None:
    shared.begin(SITES, "http://shop/menu", 1)
    arrived = page_snapshot.arrival(shared)
    act(shared, "click 'End'")
    saved = page_snapshot.save(shared, arrived)
    assert page_snapshot.save(shared) == b""  # with nothing to revisit
    assert not page_snapshot.restore(other, SITES, saved)
    assert page_snapshot.revisit(other, SITES, saved, arrived)
    act(other, "click 'End'")
    assert page_snapshot.is_back(other, saved)
    assert other.tab.history() == (["http://shop/menu", "http://shop/menu#end"], 1)
    act(shared, "go 'http://shop/'")
    assert page_snapshot.save(shared, page_snapshot.arrival(shared)) == b""


def test_a_history_that_a_script_wrote_is_not_saved(shared: WebSession) -> None:
    shared.begin(SITES, "http://shop/written", 1)
    arrived = page_snapshot.arrival(shared)
    act(shared, "click 'Write'")
    assert page_snapshot.save(shared, arrived) == b""


def test_what_lies_in_a_hidden_field_keeps_its_id(shared: WebSession, other: WebSession) -> None:
    shared.begin(SITES, "http://shop/fields", 1)
    arrived = page_snapshot.arrival(shared)
    act(shared, "type 'Name' 'Ann'", "click 'Hide'")
    saved = page_snapshot.save(shared, arrived)
    assert not page_snapshot.restore(other, SITES, saved)
    assert page_snapshot.revisit(other, SITES, saved, arrived)
    act(other, "type 'Name' 'Ann'", "click 'Hide'")
    assert page_snapshot.is_back(other, saved)
    act(shared, "click 'Hide'")
    act(other, "click 'Hide'")
    assert other.elements() == shared.elements()


def test_what_a_page_does_as_it_is_left_reaches_no_other_world(shared: WebSession) -> None:
    asked: list[str] = []

    def listening(request: Request) -> Response:
        asked.append(request.path)
        return site(request)

    shared.begin(SITES, "http://shop/leaving", 1)
    shared.begin({"shop": listening}, "http://shop/", 1)
    assert shared.run("[{...localStorage}, {...sessionStorage}, document.cookie]") == [{}, {}, ""]
    assert asked == ["/"]
    assert not shared.refused
    shared.begin(SITES, "http://shop/leaving", 1)
    act(shared, "go 'http://shop/'")  # within its world, it stays
    assert shared.run("localStorage.late") == "1"


def test_a_long_series_of_restores_leaves_no_pages_behind() -> None:
    session, other = new_session(SIZE), new_session(SIZE)
    session.begin(SITES, "http://shop/", 1)
    act(session, "click 'Add'", "go 'http://shop/menu'")
    saved = page_snapshot.save(session)

    def left() -> tuple[int, int]:
        targets = session.connection.call("Target.getTargets")["targetInfos"]
        contexts = session.connection.call("Target.getBrowserContexts")["browserContextIds"]
        return len(targets), len(contexts)

    before, listeners = left(), len(session.connection.listeners)
    for _ in range(30):
        assert page_snapshot.restore(session, SITES, saved)
        assert page_snapshot.restore(other, SITES, saved)
        other.close()
        other = new_session(SIZE)  # the context that was given back
    assert left() == before
    assert len(session.connection.listeners) == listeners
    session.tab.call("HeapProfiler.collectGarbage")
    assert session.tab.call("Memory.getDOMCounters")["documents"] < 10
    session.close()
    other.close()
