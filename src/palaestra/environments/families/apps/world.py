"""A world of apps that is being used: its state, its time, and what was called.

A call is answered as a service would answer it: with a status and JSON. One that is refused leaves
no trace in the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from palaestra.core.tool import NotACall, fits
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.api import Api, ApiError, Caller
from palaestra.environments.families.apps.compiler.login import holder
from palaestra.environments.families.apps.state import State, Template

TIME = "%Y-%m-%d %H:%M"
LARGEST = 65_536  # characters of all arguments of a call
LARGEST_NUMBER = 1e12
MINUTE = 60
OK = 200  # the status of a call that was answered


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered."""

    status: int  # as in HTTP
    body: Any

    @property
    def ok(self) -> bool:
        return self.status == OK

    def __str__(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Called:
    """A call that was made."""

    api: str  # `app.name`
    arguments: Mapping[str, Any]
    status: int
    body: Any = None  # what it answered, if it was not refused


class World:
    """One world, opened from a template; one call at a time."""

    def __init__(self, suite: Suite, template: Template, start: str) -> None:
        """Open a world.

        Args:
            suite: its apps.
            template: its rows.
            start: its time at the beginning, such as "2026-03-02 09:00".
        """
        self.suite, self.start = suite, start
        self.state = State(template)
        self.seconds = 0  # since the start; a call that changes something takes one
        self.calls: list[Called] = []
        self._recent: list[tuple[int, str, int]] = []  # person, app and second of late changes

    def close(self) -> None:
        self.state.close()

    @property
    def now(self) -> str:
        """The world's time, to the minute."""
        began = datetime.strptime(self.start, TIME)
        return (began + timedelta(seconds=self.seconds)).strftime(TIME)

    def call(self, api: str, arguments: Mapping[str, Any], person: int = 0) -> Reply:
        """Call an API.

        Args:
            api: `app.name`.
            arguments: by name; `access_token` says who calls, where nobody is signed in.
            person: who is signed in to all apps; 0: nobody.
        """
        given = dict(arguments)
        try:
            reply = Reply(OK, self._answer(api, given, person))
        except ApiError as error:
            reply = Reply(error.status, {"error": error.message})
        self.note(Called(api, arguments, reply.status, reply.body if reply.ok else None))
        return reply

    def note(self, called: Called) -> None:
        """Add to the calls; for what is no API, such as reading documentation."""
        self.calls.append(called)

    def key(self) -> str:
        """Return a key of the rows, the time, and what counts towards rate limits."""
        return json.dumps([self.state.key(), self.seconds, self._late()])

    def fork(self) -> World:
        """Return a copy that lives on by itself."""
        other = World.__new__(World)
        other.suite, other.start, other.seconds = self.suite, self.start, self.seconds
        other.state, other.calls = self.state.fork(), list(self.calls)
        other._recent = list(self._recent)
        return other

    def snapshot(self) -> bytes:
        calls = [[made.api, made.arguments, made.status, made.body] for made in self.calls]
        head = json.dumps([self.start, self.seconds, calls, self._recent])
        return head.encode() + b"\n" + self.state.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Return to a snapshot of a world of the same apps."""
        head, _, rest = snapshot.partition(b"\n")
        self.start, self.seconds, calls, recent = json.loads(head)
        self.calls = [Called(*made) for made in calls]
        self._recent = [(person, app, second) for person, app, second in recent]
        self.state.restore(rest)

    # ── details ──────────────────────────────────────────────────────────────

    def _answer(self, name: str, given: dict[str, Any], person: int) -> Any:
        """Return the body of a reply; raises ApiError."""
        api = self.suite.apis.get(name)
        if api is None:
            raise ApiError(404, f"There is no API '{name}'.")
        if len(json.dumps(given)) > LARGEST:
            raise ApiError(413, f"The arguments are longer than {LARGEST} characters.")
        caller = self._caller(api, given, person)
        _validate(api, given)
        if not api.changes:
            return _run(api, caller, given)
        self._limit(api.app, caller.person)
        with self.state.transaction():
            body = _run(api, caller, given)
        self._recent = [*self._late(), (caller.person, api.app, self.seconds)]
        self.seconds += 1
        return body

    def _caller(self, api: Api, given: dict[str, Any], person: int) -> Caller:
        """Return who calls; raises ApiError 401 where an app wants to know and does not."""
        nobody = Caller(self.state, self.suite.blueprints, person, self.now)
        token = given.pop("access_token", None)
        if token is not None:
            found = holder(nobody, api.app, str(token))
            if found is None:
                raise ApiError(401, f"This access token is not valid for '{api.app}'.")
            return Caller(self.state, self.suite.blueprints, found, self.now)
        if not person and self.suite.blueprints[api.app].private and api.name != "login":
            raise ApiError(401, f"Sign in with {api.app}.login, and pass the access_token.")
        return nobody

    def _limit(self, app: str, person: int) -> None:
        most = self.suite.blueprints[app].changes_per_minute
        late = sum(1 for who, where, _ in self._late() if (who, where) == (person, app))
        if most is not None and late >= most:
            raise ApiError(429, f"'{app}' allows {most} changes a minute; wait a minute.")

    def _late(self) -> list[tuple[int, str, int]]:
        """Return the changes of the last minute."""
        return [made for made in self._recent if made[2] > self.seconds - MINUTE]


def _run(api: Api, caller: Caller, given: Mapping[str, Any]) -> Any:
    """Return what an API answers; a verb refuses arguments that do not fit with 422."""
    try:
        return api.run(caller, given)
    except NotACall as error:
        raise ApiError(422, str(error)) from None


def _not_storable(value: Any) -> str | None:
    """Return why no service could store a value, whatever its field; None if one could."""
    if isinstance(value, (int, float)) and not -LARGEST_NUMBER < value < LARGEST_NUMBER:
        return "is too large a number"
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "is not valid Unicode"
    return None


def _validate(api: Api, given: Mapping[str, Any]) -> None:
    """Raise ApiError 400 or 422 for arguments that are unknown, missing or of a wrong type."""
    properties = api.parameters["properties"]
    for name in given:
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise ApiError(400, f"'{name}' is no argument of {api.full_name}; it takes {known}.")
    for name in api.parameters.get("required", ()):
        if name not in given:
            raise ApiError(400, f"{api.full_name} needs '{name}'.")
    for name, value in given.items():
        schema = properties[name]
        if problem := _not_storable(value):
            raise ApiError(422, f"'{name}' {problem}.")
        if not fits(value, schema):
            wanted = " or ".join(
                map(str, schema.get("enum", [schema.get("type", "another value")]))
            )
            raise ApiError(422, f"'{name}' must be {wanted}.")
