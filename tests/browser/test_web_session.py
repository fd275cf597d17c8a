"""A real browser does what gestures say in its own time, and says in words what it cannot do."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from palaestra.browser import page_snapshot
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import BEGIN, WebSession
from palaestra.core.element import Element
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.gestures.gesture_line import read_line
from tests.browser.needed import browser_missing
from tests.browser.pages import shop

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

SIZE = (400, 300)


@pytest.fixture(scope="module")
def shared() -> Iterator[WebSession]:
    session = new_session(SIZE)
    yield session
    session.close()


def opened(session: WebSession, path: str, seed: int = 1) -> WebSession:
    session.begin({"shop": shop}, f"http://shop{path}", seed, {"cv.txt": b"my life"})
    return session


def act(session: WebSession, *lines: str) -> None:
    for line in lines:
        do(session, read_line(line))


def texts(session: WebSession) -> list[str]:
    return [element.name for element in session.elements() if element.role == "StaticText"]


def named(session: WebSession, name: str) -> Element:
    return next(element for element in session.elements() if element.name == name)


def test_a_form_is_filled_with_the_mouse_and_the_keyboard(shared: WebSession) -> None:
    session = opened(shared, "/")
    assert "disabled" in named(session, "Go").states
    act(session, "type 'the Name field' 'Ann!' ", "click 'Go'")
    assert named(session, "Name").value == "Ann!"
    assert "went after" in " ".join(texts(session)), texts(session)
    act(session, "type 'the Name field' 'Bö' clear")
    assert named(session, "Name").value == "Bö"
    act(session, "select 'Size' 'large'")
    assert "size large" in texts(session)
    act(session, "press 'Control+a'", f"upload [{named(session, 'File').id}] 'cv.txt'")
    assert "file my life" in texts(session)


SHIFTED = (
    b"<div id=above style='height: 900px'>above</div><h1 id='the end'>End</h1>"
    b"<div style='height: 2000px'></div>"
    b"<script>setTimeout(() => { above.style.height = '400px' }, 5)</script>"
)


def test_a_page_with_a_fragment_shows_it_though_its_scripts_move_it(shared: WebSession) -> None:
    boxes = set()
    for _ in range(3):
        shared.begin({"shop": lambda _: Response(SHIFTED)}, "http://shop/other", 1)
        act(shared, "go 'http://shop/#the%20end'")
        boxes.add(next(one.box for one in shared.elements() if one.role == "heading"))
    [box] = boxes
    assert box is not None
    assert 0 <= box.y < 30  # its margin


FORM = (
    b"<form method=post enctype=multipart/form-data><label>Who <input name=who></label>"
    b"<label>File <input type=file name=file></label><button>Send</button></form>"
)


def test_a_form_sends_its_files_and_equal_forms_are_equal(shared: WebSession) -> None:
    sent: list[Request] = []

    def site(request: Request) -> Response:
        if request.method == "POST":
            sent.append(request)
        return Response(FORM)

    for _ in range(2):
        shared.begin({"shop": site}, "http://shop/", 1, {"papers/cv.txt": b"my\xfflife"})
        act(shared, "type 'Who' 'Ann'", "upload 'File' 'papers/cv.txt'", "click 'Send'")
    first, second = sent
    assert first == second
    assert b'filename="cv.txt"' in first.body
    assert b"\r\n\r\nmy\xfflife\r\n" in first.body
    assert b'name="who"\r\n\r\nAnn\r\n' in first.body


def test_equal_seeds_give_equal_pages_and_others_do_not(shared: WebSession) -> None:
    first = opened(shared, "/", 1)
    elements, picture = first.elements(), first.picture()
    assert str(int(BEGIN)) in texts(first)
    act(first, "click 'the Name field'", "wait 3")
    assert opened(shared, "/", 1).elements() == elements
    assert shared.picture() == picture
    assert opened(shared, "/", 2).elements() != elements
    other = new_session(SIZE)
    assert opened(other, "/", 1).elements() == elements
    other.close()


def test_time_goes_on_over_pages_and_only_with_gestures(shared: WebSession) -> None:
    session = opened(shared, "/")
    before = session.now
    act(session, "wait 60", "click 'Next'")
    assert session.now == before + 61_000
    (shown,) = (int(text) for text in texts(session) if text.isdigit())
    assert shown == before + 60_000


def test_pages_before_and_after(shared: WebSession) -> None:
    session = opened(shared, "/")
    with pytest.raises(InputError, match="no page before"):
        act(session, "back")
    act(session, "click 'the Next link'")
    assert named(session, "Next").role == "RootWebArea"
    act(session, "back")
    assert named(session, "Home").role == "RootWebArea"
    act(session, "forward", "go 'http://shop/long'")
    assert named(session, "Long").role == "RootWebArea"


def test_tabs(shared: WebSession) -> None:
    session = opened(shared, "/")
    act(session, "click 'In a tab'")
    assert len(session.tabs) == 2 and named(session, "Next").role == "RootWebArea"
    act(session, "tab 0")
    assert named(session, "Home").role == "RootWebArea"
    with pytest.raises(InputError, match="no tab 7"):
        act(session, "tab 7")
    act(session, "tab 1", "tab close")
    assert len(session.tabs) == 1
    act(session, "tab new", "go 'shop/long'")
    assert named(session, "Long").role == "RootWebArea"
    assert len(opened(session, "/").tabs) == 1


def test_a_window_that_closes_itself_gives_its_time_to_the_one_before(shared: WebSession) -> None:
    session = opened(shared, "/opener")
    act(session, "click 'Open'")
    assert len(session.tabs) == 2
    act(session, "click 'Tell and close'")
    assert len(session.tabs) == 1 and "told" in texts(session)


def test_an_attachment_is_kept_among_the_files_and_can_be_uploaded(shared: WebSession) -> None:
    session = opened(shared, "/list")
    assert page_snapshot.save(session)
    act(session, "click 'Note'")
    assert session.downloads == ["note.txt"] and session.files["note.txt"] == b"noted"
    assert named(session, "List").role == "RootWebArea" and session.refused == []
    assert page_snapshot.save(session) == b""  # no snapshot of a page holds files
    act(session, "upload 'File' 'note.txt'")
    assert "note.txt" in named(session, "File").value
    assert opened(session, "/list").downloads == [] and "note.txt" not in session.files


def test_the_pointer_of_an_earlier_world_hovers_over_nothing(shared: WebSession) -> None:
    elements, picture = opened(shared, "/hover").elements(), shared.picture()
    act(shared, "hover 'Here'")
    assert "hovered" in texts(shared)
    assert opened(shared, "/hover").elements() == elements
    assert shared.picture() == picture


def test_dialogs_are_elements_that_wait_for_an_answer(shared: WebSession) -> None:
    session = opened(shared, "/dialogs")
    act(session, "click 'Alert'")
    assert [one.role for one in session.elements()] == ["alertdialog", "button"]
    with pytest.raises(InputError, match="dialog is open"):
        act(session, "scroll down 10")
    act(session, "click 'OK'")
    assert "alert: undefined" in texts(session)
    act(session, "click 'Confirm'", "click 'Cancel'")
    assert "confirm: false" in texts(session)
    act(session, "click 'Prompt'", "type [dialog-text] 'new' clear", "press 'Enter'")
    assert "prompt: new" in texts(session)
    act(session, "click 'Alert'")
    assert named(opened(session, "/"), "Home").role == "RootWebArea"


def test_an_open_dialog_has_a_picture_whose_buttons_can_be_clicked(shared: WebSession) -> None:
    session = opened(shared, "/dialogs")
    page = session.picture()
    act(session, "click 'Confirm'")
    confirm = session.picture()
    with Image.open(io.BytesIO(confirm)) as image:
        assert image.size == SIZE
    assert confirm == session.picture() != page
    box = named(session, "Cancel").box
    assert box is not None
    act(session, f"click ({box.centre[0]}, {box.centre[1]})")
    assert "confirm: false" in texts(session)
    act(session, "click 'Prompt'")
    assert session.picture() not in (page, confirm)
    act(session, "click 'OK'")


def test_what_covers_an_element_is_named_and_nothing_is_clicked(shared: WebSession) -> None:
    session = opened(shared, "/covered")
    before = session.now
    with pytest.raises(InputError, match=r"A cover.* covers it"):
        act(session, "click 'Below'")
    assert session.now == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("click [999]", "no element"),
        ("click (1000, 3)", "outside of the picture"),
        ("go 'http://elsewhere/'", "no page 'http://elsewhere/'; the sites are http://shop/"),
        ("go 'file:///etc/passwd'", "no page"),
        ("say 'hello'", "A browser cannot do"),
    ],
)
def test_what_cannot_be_done_is_said(shared: WebSession, line: str, said: str) -> None:
    session = opened(shared, "/")
    elements = session.elements()
    with pytest.raises(InputError, match=said):
        act(session, line)
    session.changed()
    assert session.elements() == elements


def test_lists_and_files_that_do_not_exist(shared: WebSession) -> None:
    session = opened(shared, "/")
    with pytest.raises(InputError, match=r"no option 'huge' to choose: 'small', 'large'"):
        act(session, "select 'Size' 'huge'")
    with pytest.raises(InputError, match=r"no file 'cv.pdf' to upload; there are: 'cv.txt'"):
        act(session, f"upload [{named(session, 'File').id}] 'cv.pdf'")
    with pytest.raises(InputError, match="takes no file"):
        act(session, "upload 'Name' 'cv.txt'")


def test_frames_and_shadow_trees_are_seen_and_clicked(shared: WebSession) -> None:
    session = opened(shared, "/parts")
    act(session, "click 'In the frame'", "click 'In the shadow'")
    assert {"frame was clicked", "shadow was clicked"} <= {*texts(session)}
    inner = named(session, "In the frame").box
    assert inner is not None and inner.x > 20 and inner.y > 20


def test_scrolling_and_what_lies_outside_of_the_picture(shared: WebSession) -> None:
    session = opened(shared, "/long")
    assert named(session, "Top").box is not None and named(session, "Deep").box is None
    act(session, "scroll down 1 page")
    assert named(session, "Top").box is None and named(session, "Deep").box is None
    act(session, "scroll down 5000")
    assert named(session, "Deep").box is not None
    opened(session, "/long")
    act(session, "click 'Deep'")
    assert named(session, "Found").box is not None


def test_things_are_dragged(shared: WebSession) -> None:
    session = opened(shared, "/drag")
    act(session, "drag 'What' to 'There'")
    assert "dropped it" in texts(session)


def test_frames_on_demand_show_what_a_window_shows(shared: WebSession) -> None:
    other = new_session(SIZE, frames_on_demand=True)
    assert other.browser is not shared.browser
    seen: list[list[Any]] = []
    for session in (shared, other):
        found: list[Any] = []
        for path, lines in (
            ("/", ["type 'the Name field' 'Ann!'", "click 'Go'"]),
            ("/hover", ["hover 'Here'"]),
            ("/long", ["scroll down 1 page", "click 'Deep'"]),
            ("/drag", ["drag 'What' to 'There'"]),
            ("/dialogs", ["click 'Alert'", "click 'OK'"]),
        ):
            opened(session, path)
            for line in lines:
                act(session, line)
                found += [line, session.elements(), session.picture()]
        seen.append(found)
    assert seen[0] == seen[1]
    other.close()


def test_a_picture_changes_nothing_of_what_follows() -> None:
    page = (
        b"<style>button, p { position: absolute; left: 9px; top: 9px; width: 99px }"
        b"p { margin: 0 }</style>"
        b"<button onclick='below.hidden = false'>Cover</button>"
        b"<p id=below hidden onmouseover='this.textContent += 1'>under it </p>"
        b"<button style='top: 99px'>Other</button>"
    )
    seen = []
    for look in (True, False):
        session = new_session(SIZE, frames_on_demand=True)
        session.begin({"shop": lambda request: Response(page)}, "http://shop/", 1)
        for line in ("click 'Cover'", "click 'Other'"):
            act(session, line)
            elements = session.elements()
            if look:
                session.picture()
        seen.append(elements)
        session.close()
    assert seen[0] == seen[1]
    assert "under it 1" in [element.name for element in seen[0]]


def test_requests_are_answered_before_time_goes_on(shared: WebSession) -> None:
    session = opened(shared, "/data")
    act(session, "click 'Load'")
    assert "POST a=1" in texts(session)


def test_the_picture_has_the_size_of_the_page(shared: WebSession) -> None:
    picture = opened(shared, "/").picture()
    assert Image.open(io.BytesIO(picture)).size == SIZE


def test_no_way_leads_out(shared: WebSession) -> None:
    session = opened(shared, "/ways-out")
    act(session, "wait 5")
    said = next(text for text in texts(session) if "host" in text)
    assert "got out" not in said and said.count("refused") == 8
    assert {"GET http://elsewhere/", "GET http://10.0.0.1/"} <= {*session.refused}
    act(opened(session, "/"), "click 'Elsewhere'")
    assert session.refused == ["GET http://elsewhere/"]


def test_a_link_that_is_broken_over_two_lines_is_clicked_on_its_first(shared: WebSession) -> None:
    session = opened(shared, "/broken")
    broken, whole = named(session, "a link goes on"), named(session, "one")
    assert broken.box is not None and broken.point is not None and whole.box is not None
    assert broken.box.height > 1.5 * whole.box.height
    assert whole.point == whole.box.centre and whole.inside is None
    x, y = broken.point
    assert x > broken.box.centre[0] and y < broken.box.centre[1]
    act(session, f"click ({round(x)}, {round(y)})")
    assert session.tab.address() == "http://shop/next"
    act(session, "back", "click 'a link goes on'")
    assert session.tab.address() == "http://shop/next"
    assert session.pointer == pytest.approx((x, y), abs=2)


def test_a_session_begins_without_what_others_stored(shared: WebSession) -> None:
    session = opened(shared, "/")
    store = "localStorage.kept = 1; document.cookie = 'kept=1'"
    seen = "[localStorage.kept || null, document.cookie]"
    session.run(store)
    assert session.run(seen) == ["1", "kept=1"]
    other = opened(new_session(SIZE), "/")
    assert other.run(seen) == [None, ""]
    other.close()
    assert opened(session, "/").run(seen) == [None, ""]


def test_a_page_comes_back_in_another_session_without_its_gestures(shared: WebSession) -> None:
    session = opened(shared, "/next")
    act(session, "go 'http://shop/form'", "type 'the Name field' 'Ann'", "select 'Size' 'large'")
    act(session, "type 'the Text field' 'one\\ntwo'", "click 'Agreed'")
    session.run("localStorage.kept = 1; document.cookie = 'kept=1'")
    act(session, "click 'the Name field'")
    seen = session.elements()  # with what lies within the field
    saved = page_snapshot.save(session)
    assert saved and len(saved) < 10_000
    other = opened(new_session(SIZE), "/long")
    assert page_snapshot.restore(other, {"shop": shop}, saved)
    assert other.elements() == seen
    assert other.run("[localStorage.kept, document.cookie]") == ["1", "kept=1"]
    assert named(other, "Name").value == "Ann" and "focused" in named(other, "Name").states
    assert other.tab.history() == (["http://shop/next", "http://shop/form"], 1)
    act(other, "back")
    assert named(other, "Next").role == "RootWebArea"
    other.close()


def test_a_stored_answer_of_a_site_is_saved_as_its_address(shared: WebSession) -> None:
    rng = random.Random(0)
    answers = ["".join(rng.choices("abcdef0123456789", k=50_000)) for _ in range(2)]

    def site(request: Request) -> Response:
        if request.path == "/long":
            return Response(answers[0].encode(), "text/plain")
        return Response(
            b"<button onclick=\"fetch('/long').then((answer) => answer.text())"
            b'.then((text) => { localStorage.long = text; })">Load</button>'
        )

    shared.begin({"shop": site}, "http://shop/", 1)
    act(shared, "click 'Load'")
    saved = page_snapshot.save(shared)
    assert len(saved) < 2_000
    other = new_session(SIZE)
    assert page_snapshot.restore(other, {"shop": site}, saved)
    assert other.run("localStorage.long") == answers[0]
    assert len(page_snapshot.save(other)) < 2_000
    answers.reverse()
    assert not page_snapshot.restore(other, {"shop": site}, saved)
    other.close()


def test_a_page_that_its_script_has_changed_does_not_come_back(shared: WebSession) -> None:
    session = opened(shared, "/dialogs")
    act(session, "click 'Alert'")
    assert page_snapshot.save(session) == b""
    act(session, "click 'OK'")
    saved = page_snapshot.save(session)
    assert not page_snapshot.restore(session, {"shop": shop}, saved)


def test_a_page_that_can_begins_again_without_a_load(shared: WebSession) -> None:
    session = opened(shared, "/")
    program = "(given) => [given, Math.random(), Date.now()]"
    session.hold(program)
    loads = session.tab.loads
    act(session, "click 'the Name field'", "wait 5")
    assert session.can_begin_again()
    again, now = session.again(2, "a"), session.now
    assert session.tab.loads == loads
    assert opened(session, "/", 2).run(f"({program})('a')") == again and session.now == now
    session.hold(program)
    act(session, "click 'Next'")
    assert not session.can_begin_again()


@pytest.mark.slow
def test_cookies_go_to_the_host_that_set_them(shared: WebSession) -> None:
    seen: dict[str, str] = {}

    def site(request: Request) -> Response:
        seen[request.address] = request.headers.get("Cookie", "")
        link = b"<a href='http://other/'>Other</a> <a href='/again'>Again</a>"
        return Response(link, cookies=("a=1; HttpOnly", "b=2; Max-Age=60"))

    sites = {"shop": site, "other": site}
    shared.begin(sites, "http://shop/", 1, cookies={"shop": {"sid": "7"}})
    act(shared, "click 'Again'", "click 'Other'", "click 'Again'")
    assert seen == {
        "http://shop/": "sid=7",
        "http://shop/again": "sid=7; a=1; b=2",
        "http://other/": "",
        "http://other/again": "a=1; b=2",
    }
    assert shared.run("document.cookie") == "b=2"
    shared.begin(sites, "http://shop/", 1)
    assert seen["http://shop/"] == ""


def test_a_page_of_fifty_thousand_elements_is_named_as_such(shared: WebSession) -> None:
    (page,) = opened(shared, "/huge").elements()
    assert page.name.startswith("This page has 50,005 elements, more than the 20,000 that are read")
    act(shared, "click (20, 20)")


@pytest.mark.slow
def test_a_page_that_hangs_is_a_fault_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.browser.devtools.PATIENCE", 1.0)
    session, other = new_session(SIZE), new_session(SIZE)
    opened(session, "/endless")
    with pytest.raises(EnvironmentFault, match="does not answer"):
        act(session, "click 'Hang'")
    assert session.failed and not other.failed
    session.close()
    assert named(opened(other, "/"), "Home")
    other.close()


@pytest.mark.slow
def test_a_browser_that_is_killed_is_a_fault_and_is_replaced() -> None:
    session = opened(new_session(SIZE), "/")
    browser = session.browser
    browser.process.close()
    with pytest.raises(EnvironmentFault, match="the browser ended"):
        act(session, "click 'Next'")
    assert session.failed
    session.close()
    again = opened(new_session(SIZE), "/")
    assert again.browser is not browser
    again.close()
