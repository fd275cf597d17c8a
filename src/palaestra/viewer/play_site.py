"""A game as web pages: each person who plays has a link of its own, a page and a form.

A link holds a random token, and belongs to the browser that opens it first: others are refused. The
pages need no scripts. A page that waits for others loads its successor, whose answer comes as soon
as something has happened.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from palaestra.core.environment import Action, Capability, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.player_session import PlayerSession
from palaestra.core.session import Session
from palaestra.core.tool import ACT, Tool
from palaestra.runtime.visible_text import visible
from palaestra.viewer.access import HostGuard, check_origin, form_fields, host_of, same_secret
from palaestra.viewer.app import STATIC
from palaestra.viewer.message_views import picture_urls
from palaestra.viewer.site import page_templates
from palaestra.viewer.texts import Text, cut

HELD = 25.0  # seconds for which a waiting page's next one is held back at most
SHOWN = 60  # entries of a page; earlier ones are left out
BUTTONS = 40  # admissible actions that have a button


@dataclass(frozen=True, slots=True)
class Entry:
    """What a player saw or did, for its page."""

    kind: str  # "saw", "did" or "refused"
    text: Text
    pictures: tuple[str, ...] = ()  # as `data:` URLs
    reward: float = 0.0


class PersonInBrowser:
    """A person's side of a game: what the page shows, and the actions that it sends."""

    def __init__(self, player: str) -> None:
        """Make the link's token, for one player."""
        self.player, self.token = player, secrets.token_urlsafe(24)
        self.browser = ""  # the cookie of the browser that opened the link first; empty: none has
        self.form = secrets.token_urlsafe(24)  # stands in each form of the page
        self.entries: list[Entry] = []
        self.asked = 0  # turns so far
        self.session: Session | None = None  # once the first turn has begun
        self.out = False  # whether the person has left or was out of time
        self.results: list[str] = []  # of all players, once the game is over
        self.version = 0  # counts the changes of the page
        self._changed = asyncio.Event()
        self._answer: asyncio.Future[Action | None] | None = None

    # ── the person's front, for the agent ────────────────────────────────────

    def begin(self, session: Session) -> None:
        """Begin with what the player sees first."""
        self.session = session
        assert session.observation is not None
        self._add("saw", session.observation)

    async def ask(self, session: Session) -> Action | None:
        """Wait for the next action of the person; None: it leaves."""
        self.asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._change()
        try:
            action = await self._answer
        except asyncio.CancelledError:  # out of time, or the game is over
            self.out = True
            raise
        finally:
            self._answer = None
            self._change()
        self.out = action is None
        return action

    def show(self, transition: Transition) -> None:
        """Show what followed an action."""
        kind = "saw" if transition.valid else "refused"
        self._add(kind, transition.observation, transition.reward)

    # ── the page's side ──────────────────────────────────────────────────────

    @property
    def waiting(self) -> bool:
        """Whether the person is asked for an action."""
        return self._answer is not None and not self._answer.done()

    def answer(self, action: Action | None) -> None:
        """Take the person's action; None: it leaves the game."""
        assert self._answer is not None
        if action is not None:
            self.entries.append(Entry("did", cut(action.text)))
        self._answer.set_result(action)

    def finish(self, results: Sequence[str]) -> None:
        """End the game with these lines."""
        self.results = list(results)
        self._change()

    async def after(self, version: int) -> None:
        """Wait until the page has changed since that version, for HELD seconds at most."""
        try:
            async with asyncio.timeout(HELD):
                while self.version == version:
                    await self._changed.wait()
        except TimeoutError:
            return

    def _add(self, kind: str, seen: Observation, reward: float = 0.0) -> None:
        self.entries.append(Entry(kind, cut(seen.text), picture_urls(seen.images), reward))
        self._change()

    def _change(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


class PlaySite:
    """The pages of one game."""

    def __init__(self, persons: Sequence[PersonInBrowser], title: str) -> None:
        """Show the game of that title to each of the persons."""
        self._persons, self._title = persons, title
        self._templates = page_templates()
        self._ended: set[str] = set()  # players whose last page was sent
        self._all_ended = asyncio.Event()

    def application(self) -> Starlette:
        """Return the web application."""
        return Starlette(
            routes=[
                Route("/play/{token}", self._page, methods=["GET"]),
                Route("/play/{token}", self._take, methods=["POST"]),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[Middleware(PlayGuard)],
            exception_handlers={HTTPException: _refused},
        )

    async def all_read_the_end(self, seconds: float) -> None:
        """Wait until all who opened their link were sent the results, for so long at most."""
        self._check_ended()
        try:
            async with asyncio.timeout(seconds):
                await self._all_ended.wait()
        except TimeoutError:
            return

    # ── details ──────────────────────────────────────────────────────────────

    async def _page(self, request: Request) -> Response:
        """Show a person's page; the first browser that opens it gets a cookie that it is shown."""
        person = self._person(request)
        first = not person.browser
        if first:
            person.browser = secrets.token_urlsafe(24)
        else:
            self._check_browser(request, person)
        after = request.query_params.get("after", "")
        if after.isascii() and after.isdigit() and len(after) < 12 and not person.results:
            await person.after(int(after))
        response = await self._rendered(person)
        if first:
            response.set_cookie(
                _cookie(request), person.browser, httponly=True, samesite="lax", path=_path(person)
            )
        return response

    async def _take(self, request: Request) -> Response:
        """Take an action from a form."""
        person = self._person(request)
        self._check_browser(request, person)
        check_origin(request, "Actions")
        fields = await form_fields(request, "action")
        if not same_secret(fields.get("form", ""), person.form):
            raise HTTPException(403, "The form is not of your page; open your link again.")
        if not person.waiting or fields.get("turn") != str(person.asked):
            return await self._rendered(person, "That turn is over; this is where the game stands.")
        if "leave" in fields:
            person.answer(None)
            return RedirectResponse(_path(person), 303)
        try:
            action = _action(fields, person)
        except InputError as error:
            return await self._rendered(person, str(error))
        person.answer(action)
        return RedirectResponse(f"{_path(person)}?after={person.version}", 303)

    def _person(self, request: Request) -> PersonInBrowser:
        token = request.path_params["token"]
        for person in self._persons:
            if same_secret(token, person.token):
                return person
        raise HTTPException(
            403, "No player has this link; open the one that `palaestra play` printed for you."
        )

    def _check_browser(self, request: Request, person: PersonInBrowser) -> None:
        shown = request.cookies.get(_cookie(request), "")
        if not (person.browser and same_secret(shown, person.browser)):
            raise HTTPException(
                403,
                f"Another browser plays for {person.player}: a link belongs to the browser that "
                "opens it first. If that was not you, end the game and begin it again.",
            )

    async def _rendered(self, person: PersonInBrowser, problem: str = "") -> HTMLResponse:
        session, left = person.session, None
        if isinstance(session, PlayerSession) and person.waiting:
            left = session.seconds_left()
        refresh = None if left is None else f"{max(0.0, left) + 1:.0f}"
        if not person.waiting and not person.results:
            refresh = f"0; url={_path(person)}?after={person.version}"
        if person.results:
            self._ended.add(person.player)
            self._check_ended()
        text = self._templates.get_template("play.html").render(
            title=self._title,
            person=person,
            entries=person.entries[-SHOWN:],
            left_out=max(0, len(person.entries) - SHOWN),
            instructions="" if session is None else session.instructions,
            tools=[] if session is None else _forms(session.tools),
            actions=await _admissible(person),
            seconds=left,
            refresh=refresh,
            problem=problem,
        )
        return HTMLResponse(text.encode("utf-8", "replace"), 400 if problem else 200)

    def _check_ended(self) -> None:
        if {person.player for person in self._persons if person.browser} <= self._ended:
            self._all_ended.set()


class PlayGuard(HostGuard):
    """The guard of a game's pages."""

    command = "palaestra play"


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(visible(error.detail), error.status_code)


def _path(person: PersonInBrowser) -> str:
    return f"/play/{person.token}"


def _cookie(request: Request) -> str:
    """Return the name of the cookie; it is sent to its link's path alone, but to every port."""
    return f"palaestra-play-{host_of(request)[1]}"


async def _admissible(person: PersonInBrowser) -> list[str]:
    """Return the actions that have a button: those that make sense now, where there are few."""
    session = person.session
    if session is None or not person.waiting:
        return []
    if isinstance(session, PlayerSession) and not session.may_act.is_set():
        return []  # the environment is in the state of another player's move
    if Capability.ADMISSIBLE not in session.environment.capabilities:
        return []
    found = await session.environment.admissible()
    return found if len(found) <= BUTTONS else []


def _forms(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools with the fields of their forms; plain text needs no tool."""
    return [
        {"name": tool.name, "description": tool.description, "fields": _form_fields(tool)}
        for tool in tools
        if tool.name != ACT.name
    ]


def _form_fields(tool: Tool) -> list[dict[str, Any]]:
    schema = tool.parameters
    return [
        {
            "name": name,
            "hint": str(of.get("description") or ""),
            "choices": [str(one) for one in of.get("enum", ())],
            "kind": str(of.get("type", "JSON")),
            "required": name in schema.get("required", ()),
        }
        for name, of in schema.get("properties", {}).items()
    ]


def _action(fields: Mapping[str, str], person: PersonInBrowser) -> Action:
    """Return the action of a form.

    Raises:
        InputError: it is empty, its tool is not there, or a value has no JSON form.
    """
    assert person.session is not None
    name = fields.get("tool", "")
    if not name:
        text = fields.get("action", "").strip()
        if not text:
            raise InputError("The action is empty; write one, or leave the game.")
        return Action(text)
    found = [tool for tool in person.session.tools if tool.name == name]
    if not found:
        raise InputError(f"There is no tool '{name}' now; use one of the page.")
    given = {}
    for field in _form_fields(found[0]):
        value = fields.get(f"argument {field['name']}", "")
        if value or field["required"]:
            given[field["name"]] = _value(value, field)
    return Action.of(ToolCall(name, given))


def _value(text: str, field: Mapping[str, Any]) -> Any:
    if field["kind"] == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(
            f"'{text}' is no {field['kind']} for '{field['name']}'; write it as JSON."
        ) from None
