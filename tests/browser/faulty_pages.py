"""Real pages, of which one step in ten breaks in one of six ways."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace

from palaestra.browser import devtools
from palaestra.browser.sites import Request, Response
from palaestra.browser.web_session import WebSession
from palaestra.core.environment import Action, Spec, Transition
from palaestra.environments import registry
from palaestra.environments.wrappers.wrapper import Wrapper

SHARE = 0.1  # of steps
PATIENCE = 6.0  # seconds until a page counts as hanging: half a minute is long for a test
LOOPING = {
    "/redirect": Response(b"", status=302, headers={"Location": "http://loops/redirect"}),
    "/reload": Response(b"<script>location.reload()</script>"),
}


def loops(request: Request) -> Response:
    """A site whose pages redirect to themselves, or reload themselves."""
    return LOOPING[request.path]


def run(program: str) -> Callable[[WebSession], None]:
    """Return what starts a program in the page."""
    return lambda session: session.tab.tell("Runtime.evaluate", expression=program)


def kill(session: WebSession) -> None:
    os.killpg(session.browser.process.pid, signal.SIGKILL)


def go(path: str) -> Callable[[WebSession], None]:
    """Return what leads the page to a looping one."""

    def follow(session: WebSession) -> None:
        session.sites = {**session.sites, "loops": loops}
        run(f"location = 'http://loops{path}'")(session)

    return follow


WAYS: dict[str, Callable[[WebSession], None]] = {
    "browser": kill,
    "page": lambda session: session.tab.tell("Page.crash"),
    "hang": run("for (;;);"),
    "alerts": run("setTimeout(() => { for (;;) alert('again'); })"),
    "memory": run("for (const kept = [];;) kept.push(new Uint8Array(1 << 25).fill(1))"),
    "redirects": go("/redirect"),
    "reloads": go("/reload"),
}


class Afflicted(Wrapper):
    """An environment with a browser, named by its id; `injected` of a step's info says what was.

    The task and the turn decide what is injected, so a replay breaks in the same way.
    """

    def __init__(self, name: str) -> None:
        super().__init__(registry.make(name))
        devtools.PATIENCE = PATIENCE  # of this worker process

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return registry.spec(name)

    def step(self, action: Action) -> Transition:
        way = way_of(self.seed, self.turn)
        if way is None:
            return super().step(action)
        session = self.inner._session  # type: ignore[attr-defined]
        WAYS[way](session)
        transition = super().step(action)
        return replace(transition, info={**transition.info, "injected": way})


def way_of(seed: int, turn: int) -> str | None:
    """Return what is injected into a step; None in nine of ten."""
    rng = random.Random(f"{seed} {turn}")
    return rng.choice(list(WAYS)) if rng.random() < SHARE else None
