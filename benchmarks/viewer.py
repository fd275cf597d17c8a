"""How fast the viewer's pages come and scroll, in a real browser, on large stores.

One run of many episodes and one with a single long episode are written with the store's own code;
headless Chromium opens each page several times. First view: from the request until the browser
has painted content. Frames: the times between frames while the page is scrolled for two seconds.
    python benchmarks/viewer.py [--json] [--episodes 100000] [--events 300000]

The ratio of a first view is 300 ms over what it took; that of scrolling, 33 ms (two frames at
60 Hz) over the 95th percentile of the frame times.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import socket
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from measuring import PeerUnavailable, Result, run

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.graph import Call
from palaestra.core.message import assistant, user
from palaestra.core.model import Finish
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.task import Task
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.access import cookie
from palaestra.viewer.app import application
from palaestra.viewer.site import Site

VIEW, FRAME = 300.0, 33.3  # milliseconds that are to be reached
ROUNDS = 5
TOKEN = secrets.token_urlsafe()
OUTCOMES = (Outcome.success(), Outcome.failure(), Outcome.truncated(Limit.TURNS))


def measure(options: argparse.Namespace) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        many(root / "many", options.episodes)
        key = long(root / "long", options.events)
        with served(root) as address, chromium() as browser:
            return [
                *looked(browser, f"{address}/", "viewer, runs", ""),
                *looked(browser, f"{address}/run/many", "viewer, a run", ""),
                *looked(browser, f"{address}/run/many/episodes", "viewer, episodes"),
                *looked(
                    browser, f"{address}/run/many/episodes?sort=-reward", "viewer, episodes sorted"
                ),
                *looked(browser, f"{address}/run/long/episode/{key}", "viewer, a long episode"),
            ]


# ── stores ───────────────────────────────────────────────────────────────────


def many(path: Path, count: int) -> None:
    """A run of small episodes, of two turns each."""
    with RunFolder.create(path, {"command": "eval", "summary": "many", "model": "random"}) as kept:
        for number in range(count):
            phase = f"rl/{1 + number // 1000}" if number % 10 else "eval/test"
            kept.database.finish(lived(Key(phase, number), 2))


def long(path: Path, events: int) -> Key:
    """A run with one episode of that number of calls and steps."""
    key = Key("eval/test", 0)
    with RunFolder.create(path, {"command": "eval", "summary": "long", "model": "random"}) as kept:
        kept.database.finish(lived(key, events // 2))
    return key


def lived(key: Key, turns: int) -> Episode:
    """An episode of that number of turns, each a call and a step."""
    reply = assistant("go forward")
    call = Call(
        index=0,
        parent=None,
        role="agent",
        messages=(user("a wall 2 forward, a red key 1 left"),),
        prompt=(1, 2, 3),
        reply=reply,
        completion=(7, 2),
        logprobs=(-0.1, -0.5),
        finish=Finish.STOP,
        policy="random",
        version=0,
    )
    seen = Transition(Observation("a wall 1 forward, a red key 1 left"), reward=0.0)
    step = Step(0, 0, Action("go forward"), seen, Signals())
    return Episode(
        key=key,
        task=Task(f"test/{key.group}", "babyai/GoToObj", seed=key.group),
        agent="direct",
        observation=Observation("Mission: go to the red key"),
        calls=tuple(replace(call, index=i, parent=i - 1 if i else None) for i in range(turns)),
        steps=tuple(replace(step, index=i, call=i) for i in range(turns)),
        outcome=OUTCOMES[key.group % len(OUTCOMES)],
        usage=Usage(turns, 3 * turns, 2 * turns, 0.1),
    )


# ── the browser ──────────────────────────────────────────────────────────────


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of the viewer of the runs in `root`."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(Site(root), TOKEN), log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; raises PeerUnavailable where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise PeerUnavailable(f"Playwright is not installed: {error}") from None
    found = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as tools:
        try:
            browser = tools.chromium.launch(executable_path=found, args=arguments)
        except Error as error:
            raise PeerUnavailable(f"no Chromium can be started: {error}") from None
        try:
            yield browser
        finally:
            browser.close()


def looked(browser: Any, address: str, name: str, scroller: str = "window") -> list[Result]:
    """The first view of a page, and its frames while it is scrolled (not without a scroller)."""
    views, frames = [], []
    for _ in range(ROUNDS + 1):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        known = {"name": cookie(urlsplit(address).port or 80), "value": TOKEN, "url": address}
        page.context.add_cookies([known])
        page.goto(address)
        views.append(float(page.evaluate(PAINTED)))
        if scroller and len(views) == 2:
            frames = page.evaluate(SCROLLED)
        page.close()
    first, *again = views
    found = [result(f"{name}, first view", VIEW, again, {"first_ms": first})]
    if frames:
        ordered = sorted(frames)
        p95 = ordered[int(0.95 * (len(ordered) - 1))]
        figures = {"median_ms": statistics.median(frames), "most_ms": ordered[-1]}
        found.append(result(f"{name}, scrolling", FRAME, [p95], figures))
    return found


def result(name: str, goal: float, times: list[float], figures: dict[str, float]) -> Result:
    return Result(
        name=name,
        ratio=goal / statistics.median(times),
        goal=1.0,
        low=goal / max(times),
        high=goal / min(times),
        figures={"ms": statistics.median(times), **figures},
    )


PAINTED = """() => new Promise((done) => new PerformanceObserver((seen) => {
  const paint = seen.getEntriesByName("first-contentful-paint")[0];
  if (paint) done(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""

SCROLLED = """() => new Promise((done) => {
  const target = document.querySelector("[data-scroller]") ?? document.scrollingElement;
  const whole = target.scrollHeight - target.clientHeight;
  const times = [];
  const begun = performance.now();
  let before = begun;
  requestAnimationFrame(function frame(now) {
    if (now > before) times.push(now - before);
    before = now;
    const passed = now - begun;
    // quick strides through the first half, then jumps of a tenth of the whole
    target.scrollTop = passed < 1500 ? passed * 6 : ((Math.floor(passed / 100) % 10) / 10) * whole;
    if (passed < 2500) requestAnimationFrame(frame);
    else done(times);
  });
})"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=100_000, help="of the one run")
    parser.add_argument("--events", type=int, default=300_000, help="of the one long episode")


if __name__ == "__main__":
    run(__doc__, measure, add_options)
