"""Worlds of one process use their browser at the same time, and none sees another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from palaestra.browser import devtools
from palaestra.browser.devtools import Refusal
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.core.errors import EnvironmentFault, SharedFault
from palaestra.core.gestures.gesture_line import read_line
from tests.browser.needed import browser_missing
from tests.browser.pages import shop

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

SIZE = (400, 300)
LINES = (
    "type 'the Name field' 'Ann!' clear",
    "click 'Go'",
    "select 'Size' 'large'",
    "click 'Next'",
)


def visit(seed: int) -> list[Any]:
    """Return all that is seen of a visit to the shop."""
    session = new_session(SIZE)
    session.begin({"shop": shop}, "http://shop/", seed)
    seen: list[Any] = [session.elements(), session.picture()]
    for line in LINES:
        do(session, read_line(line))
        seen += [session.elements(), session.now]
    session.close()
    return seen


def test_visits_at_the_same_time_are_like_visits_one_after_the_other() -> None:
    keeper = new_session(SIZE)  # so that the browser does not end in between
    alone = [visit(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(visit, range(4))) == alone
    assert len({str(seen) for seen in alone}) == 4
    keeper.close()


def test_a_site_answers_in_the_thread_of_its_world_while_another_world_waits() -> None:
    meeting = threading.Barrier(2, timeout=20)

    def world(name: str) -> list[str]:
        answered: list[int] = []

        def site(request: Request) -> Response:
            answered.append(threading.get_ident())
            meeting.wait()  # both worlds wait for their pages at once
            return Response(f"<h1>{name}</h1>".encode())

        session = new_session(SIZE)
        session.begin({"site": site}, "http://site/", 1)
        names = [element.name for element in session.elements()]
        session.close()
        assert answered == [threading.get_ident()]
        return names

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(world, ["one", "two"])
    assert "one" in first and "two" in second


@pytest.mark.slow
def test_the_end_of_a_browser_is_a_fault_of_all_worlds_that_wait_for_it() -> None:
    sessions = [new_session(SIZE) for _ in range(2)]
    for session in sessions:
        session.begin({"shop": shop}, "http://shop/", 1)
    hanging = threading.Barrier(3, timeout=20)

    def wait(session: Any) -> EnvironmentFault:
        hanging.wait()
        with pytest.raises(SharedFault) as caught, session.watched():
            session.tab.evaluate("new Promise(() => {})")
        return caught.value

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(wait, session) for session in sessions]
        hanging.wait()
        sessions[0].browser.process._process.terminate()
        faults = [end.result() for end in ends]
    assert {fault.kind for fault in faults} == {"crash"}
    for session in sessions:
        session.close()
    assert visit(1)  # with another browser


def test_a_page_whose_process_ends_is_noticed_at_once() -> None:
    session, other = new_session(SIZE), new_session(SIZE)
    for one in (session, other):
        one.begin({"shop": shop}, "http://shop/", 1)
    session.tab.tell("Page.crash")
    with pytest.raises(EnvironmentFault, match="process ended"), session.watched():
        session.picture()
    assert session.failed and other.elements() and not other.failed
    session.close()
    other.close()


@pytest.mark.slow
def test_a_page_that_hangs_is_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session, other = new_session(SIZE), new_session(SIZE)
    session.begin({"shop": shop}, "http://shop/", 1)
    monkeypatch.setattr(devtools, "PATIENCE", 1.0)
    with pytest.raises(EnvironmentFault, match="does not answer"), session.watched():
        session.tab.evaluate("for (;;);")
    monkeypatch.undo()
    with pytest.raises(Refusal):  # nothing is left that would keep a processor busy
        session.tab.evaluate("1")
    other.begin({"shop": shop}, "http://shop/", 1)
    session.close()
    other.close()
