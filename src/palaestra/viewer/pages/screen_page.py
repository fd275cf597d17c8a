"""The screen of one turn, before and after its gesture.

/run/NAME/screen/KEY?turn=7

The page repeats the episode's actions up to that turn in its environment, in this process.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaestra.store.ranges import events_between, position_after, with_events
from palaestra.viewer.pages.episode_page import Opened, number_in, open_episode
from palaestra.viewer.screens import TurnScreens, has_screens, turn_screens
from palaestra.viewer.site import Site, episode_url, run_url
from palaestra.viewer.texts import cut, line
from palaestra.viewer.turns import act_of


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""
    one_replay = Lock()  # a replay is a program of its own, such as a browser

    def page(request: Request) -> Response:
        with open_episode(site, request) as opened:
            values = _page(site, opened, number_in(request, "turn", 1), one_replay)
            return site.page("screen.html", **values)

    return [Route("/run/{name}/screen/{key:path}", page)]


def _page(site: Site, opened: Opened, turn: int, one_replay: Lock) -> dict[str, Any]:
    """Return the values of the page of a turn, from 1.

    Raises:
        HTTPException: there is no such turn, or its environment shows no pictures (404).
        PalaestraError: the environment does not repeat the episode.
    """
    header, database = opened.header, opened.run.database
    environment = header.task.environment
    if not opened.finished or not has_screens(environment):
        raise HTTPException(
            404,
            f"The turns of {header.key} have no pictures: the episode is in progress, or its "
            "environment shows no pictures with elements, or is not installed.",
        )
    if not 1 <= turn <= opened.span.steps:
        raise HTTPException(404, f"{header.key} has no action {turn}; name one that was done.")

    end = position_after(database, opened.span, turn)
    episode = with_events(header, events_between(database, opened.span, 0, end))

    def find() -> TurnScreens:
        with one_replay:
            return turn_screens(episode, turn - 1)

    step = episode.steps[turn - 1]
    name = opened.run.record.name
    return {
        "title": f"turn {turn} · {header.key} · {name}",
        "run": name,
        "base": run_url(name),
        "key": header.key,
        "here": episode_url(name, header.key),
        "turn": turn,
        "turns": opened.span.steps,
        "action": line(act_of(step), 400),
        "valid": step.transition.valid,
        "answer": cut(step.transition.observation.text, 400) if not step.transition.valid else None,
        "screens": site.cached(opened.run.path, ("screen", header.key, turn), find),
    }
