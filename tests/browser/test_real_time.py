"""In real time videos play; in virtual time they do not follow the page's clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import BEGIN, WebSession
from palaestra.core.errors import InputError
from palaestra.core.gestures.gesture_line import read_line
from tests.browser.needed import browser_missing

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

SIZE = (400, 300)
LENGTH = 3  # seconds of the film, at least
STUDIO = f"""<!doctype html><title>Studio</title><canvas width=64 height=48></canvas>
  <p role=status></p><script>
    const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
    const draw = () => {{
      pen.fillStyle = `hsl(${{Date.now() / 10 % 360}} 90% 50%)`;
      pen.fillRect(0, 0, 64, 48);
      requestAnimationFrame(draw);
    }};
    draw();
    const recorder = new MediaRecorder(canvas.captureStream(10), {{ mimeType: "video/webm" }});
    recorder.ondataavailable = async (event) => {{
      await fetch("/film.webm", {{ method: "POST", body: await event.data.arrayBuffer() }});
      document.querySelector("p").textContent = "recorded";
    }};
    recorder.start();
    setTimeout(() => recorder.stop(), {LENGTH * 1000});
  </script>"""
CINEMA = """<!doctype html><title>Cinema</title><video src="/film.webm" muted></video>
  <button onclick="document.querySelector('video').play()">Play</button>
  <p id=at></p><p id=clock></p><p id=ticks></p><p id=frames></p><script>
    const show = (name, value) => { document.getElementById(name).textContent = value; };
    let ticks = 0, frames = 0;
    setInterval(() => {
      show("at", "film " + document.querySelector("video").currentTime);
      show("clock", "clock " + Date.now());
      show("ticks", "ticks " + ++ticks);
    }, 100);
    const frame = () => { show("frames", "frames " + ++frames); requestAnimationFrame(frame); };
    frame();
  </script>"""


class Cinema:
    """A site that records a film and shows it."""

    def __init__(self, film: bytes = b"") -> None:
        self.film = film

    def __call__(self, request: Request) -> Response:
        if request.path == "/film.webm":
            if request.method == "POST":
                self.film = request.body
            return Response(self.film, "video/webm")
        return Response((STUDIO if request.path == "/studio" else CINEMA).encode())


@pytest.fixture(scope="module")
def real() -> Iterator[WebSession]:
    session = new_session(SIZE, real_time=True)
    yield session
    session.close()


@pytest.fixture(scope="module")
def film(real: WebSession) -> bytes:
    site = Cinema()
    real.begin({"cinema": site}, "http://cinema/studio", 1)
    do(real, read_line(f"wait {LENGTH + 1}"))
    assert site.film
    return site.film


def shown(session: WebSession, what: str) -> float:
    texts = [one.name for one in session.elements() if one.role == "StaticText"]
    [found] = [text for text in texts if text.startswith(what)]
    return float(re.sub(r"[^0-9.]", "", found))


def test_a_video_plays_through_gestures_and_between_them(real: WebSession, film: bytes) -> None:
    real.begin({"cinema": Cinema(film)}, "http://cinema/", 1)
    assert shown(real, "film") == 0
    do(real, read_line("click 'Play'"))
    first, clock = shown(real, "film"), shown(real, "clock")
    do(real, read_line("hover (5, 5)"))
    second, later = shown(real, "film"), shown(real, "clock")
    assert 0 < first < second
    assert later - clock > 500  # a gesture takes a second
    assert BEGIN <= clock < BEGIN + 60_000 * 60
    assert shown(real, "ticks") > 0 and shown(real, "frames") > 1
    time.sleep(0.5)  # an agent that thinks
    real.changed()
    assert shown(real, "clock") > later


def test_in_virtual_time_a_video_does_not_follow_the_page(film: bytes) -> None:
    session = new_session(SIZE)
    session.begin({"cinema": Cinema(film)}, "http://cinema/", 1)
    do(session, read_line("click 'Play'"))
    at, clock = shown(session, "film"), shown(session, "clock")
    do(session, read_line(f"wait {LENGTH}"))
    assert shown(session, "clock") - clock == LENGTH * 1000
    assert shown(session, "film") - at < LENGTH / 2
    session.close()


def test_a_gesture_acts_on_what_is_there_when_it_comes(real: WebSession) -> None:
    page = b"<p id=p><button onclick='this.remove()'>Old</button></p><script>setTimeout(() => { p"
    page += b".innerHTML = '<button onclick=\"p.textContent = `pressed`\">New</button>' }, 800)"
    real.begin({"cinema": lambda _: Response(page + b"</script>")}, "http://cinema/", 1)
    assert [one.name for one in real.elements() if one.role == "button"] == ["Old"]
    time.sleep(1)  # the agent thinks for too long
    with pytest.raises(InputError, match="Old"):
        do(real, read_line("click 'Old'"))
    assert [one.name for one in real.elements() if one.role == "button"] == ["New"]
    do(real, read_line("click 'New'"))
    assert [one.name for one in real.elements() if one.role == "StaticText"] == ["pressed"]


def test_a_world_begins_at_the_same_moment_and_its_chance_is_the_seeds(real: WebSession) -> None:
    page = b"<script>document.write(Math.random(), ' ', Date.now())</script>"
    seen = []
    for _ in range(2):
        real.begin({"cinema": lambda _: Response(page)}, "http://cinema/", 7)
        [text] = [one.name for one in real.elements() if one.role == "StaticText"]
        chance, now = text.split()
        assert BEGIN <= float(now) <= BEGIN + 60_000 * 60
        seen.append(chance)
    assert seen[0] == seen[1]


def test_what_waits_for_a_dialog_goes_on_after_it(real: WebSession) -> None:
    page = b"<script>setTimeout(() => { document.title = alert('Hello') }, 1000)</script>"
    real.begin({"cinema": lambda _: Response(page)}, "http://cinema/", 1)
    do(real, read_line("wait 20"))  # ends when the dialog opens
    assert real.tab.dialog is not None
    do(real, read_line("click 'OK'"))
    assert real.tab.dialog is None
    assert real.elements()[0].name == "undefined"
