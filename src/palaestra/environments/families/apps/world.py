"""A world of apps that is being used: its state, its time, and what was called.

A call is answered as a service would answer it: with a status and JSON. One that is refused leaves
no trace in the state.

Time is simulated: it passes only by calls, which take the seconds that the blueprint declares, and
by `advance`. As it passes, events happen (`events.py`), each in its second. A call sees the world
as it was when it began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from palaestra.core.tool import NotACall, fits
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.api import Api, ApiError, Caller
from palaestra.environments.families.apps.compiler.login import holder
from palaestra.environments.families.apps.events import Event, Schedule
from palaestra.environments.families.apps.notifications import notification
from palaestra.environments.families.apps.state import Change, State, Template

TIME = "%Y-%m-%d %H:%M"
LARGEST = 65_536  # characters of all arguments of a call
LARGEST_NUMBER = 1e12
MINUTE = 60
SHOWN = 10  # notifications that are told at once
OK = 200  # the status of a call that was answered


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered."""

    status: int  # as in HTTP
    body: Any
    notifications: tuple[str, ...] = ()  # of what happened up to then

    @property
    def ok(self) -> bool:
        return self.status == OK

    def __str__(self) -> str:
        return "\n".join([json.dumps(self.body, ensure_ascii=False), *self.notifications])


@dataclass(frozen=True, slots=True)
class Called:
    """A call that was made."""

    api: str  # `app.name`
    arguments: Mapping[str, Any]
    status: int
    body: Any = None  # what it answered, if it was not refused
    second: int = 0  # of the world's clock, in which it was made

    @property
    def ok(self) -> bool:
        return self.status == OK


class World:
    """One world, opened from a template; one call at a time."""

    def __init__(
        self,
        suite: Suite,
        template: Template,
        start: str,
        events: Sequence[Event] = (),
        person: int = 0,
    ) -> None:
        """Open a world.

        Args:
            suite: its apps.
            template: its rows.
            start: its time at the beginning, such as "2026-03-02 09:00".
            events: what happens in it by itself.
            person: who is told what events change; 0: nobody.
        """
        self.suite, self.start = suite, start
        self.state = State(template)
        self.seconds = 0  # since the start
        self.calls: list[Called] = []
        self.schedule, self.person = Schedule(events), person
        self.notifications: list[str] = []  # that `take_notifications` has not returned yet
        self.witnessed: list[tuple[int, Called]] | None = None
        """Collects the calls of events, each with the person who made it, unless None."""
        self._recent: list[tuple[int, str, int]] = []  # person, app and second of late changes

    def close(self) -> None:
        self.state.close()

    @property
    def now(self) -> str:
        """The world's time, to the minute."""
        return _time(self.start, self.seconds)

    def time_of(self, second: int) -> str:
        """Return the world's time in a second since the start."""
        return _time(self.start, second)

    def call(self, api: str, arguments: Mapping[str, Any], person: int = 0) -> Reply:
        """Call an API.

        Args:
            api: `app.name`.
            arguments: by name; `access_token` says who calls, where nobody is signed in.
            person: who is signed in to all apps; 0: nobody.
        """
        second, reply = self.seconds, self.reply_to(api, arguments, person)
        if reply.ok:
            self.advance(self._duration(api))
        self.note(Called(api, arguments, reply.status, reply.body if reply.ok else None, second))
        told = self.take_notifications()
        return replace(reply, notifications=told) if told else reply

    def reply_to(self, api: str, arguments: Mapping[str, Any], person: int) -> Reply:
        """Answer a call of somebody else than the agent: it takes no time, and is not noted."""
        try:
            return Reply(OK, self._answer(api, dict(arguments), person))
        except ApiError as error:
            return Reply(error.status, {"error": error.message})

    def advance(self, seconds: int, until_notified: bool = False) -> str:
        """Let time pass, and return the world's time then.

        Args:
            seconds: how much; at least 0.
            until_notified: whether to stop at once where there is a notification.
        """
        end, events = self.seconds + seconds, self.schedule
        events.watch(self.state, self.seconds)
        while not (until_notified and self.notifications):
            if (number := events.next(end)) is None:
                self.seconds = end
                break
            self._happen(number)
            events.watch(self.state, self.seconds)
        return self.now

    def take_notifications(self) -> tuple[str, ...]:
        """Return what the person has not been told yet, each with its time; of many the last."""
        if not self.notifications:
            return ()
        told, self.notifications = self.notifications, []
        earlier = len(told) - SHOWN
        return tuple(told) if earlier <= 0 else (f"[…] {earlier} more before", *told[-SHOWN:])

    def note(self, called: Called) -> None:
        """Add to the calls; for what is no API, such as reading documentation."""
        self.calls.append(called)

    def changing_calls(self) -> list[Called]:
        """Return the calls that changed something, and were not refused."""
        apis = self.suite.apis
        answered = (one for one in self.calls if one.status == OK and one.api in apis)
        return [one for one in answered if apis[one.api].changes]

    def key(self) -> str:
        """Return a key of the rows, the time, and what counts towards rate limits."""
        parts = [self.state.key(), self.seconds, self._late()]
        if self.schedule.events:
            made = [[one.api, one.second] for one in self.changing_calls()]
            parts += [self.schedule.saved(), self.notifications, made, self.state.history_key()]
        return json.dumps(parts)

    def fork(self) -> World:
        """Return a copy that lives on by itself."""
        other = World.__new__(World)
        other.suite, other.start, other.seconds = self.suite, self.start, self.seconds
        other.state, other.calls = self.state.fork(), list(self.calls)
        other._recent = list(self._recent)
        other.schedule, other.person = self.schedule.fork(), self.person
        other.notifications, other.witnessed = list(self.notifications), None
        return other

    def snapshot(self) -> bytes:
        calls = [
            [made.api, made.arguments, made.status, made.body, made.second] for made in self.calls
        ]
        events = [self.schedule.saved(), self.notifications]
        head = json.dumps([self.start, self.seconds, calls, self._recent, events])
        return head.encode() + b"\n" + self.state.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Return to a snapshot of a world of the same apps and events."""
        head, _, rest = snapshot.partition(b"\n")
        self.start, self.seconds, calls, recent, events = json.loads(head)
        self.schedule.restore(events[0])
        self.notifications = events[1]
        self.calls = [Called(*made) for made in calls]
        self._recent = [(person, app, second) for person, app, second in recent]
        self.state.restore(rest)

    # ── details ──────────────────────────────────────────────────────────────

    def _duration(self, name: str) -> int:
        """Return how many seconds a call takes that was answered; a change one, unless declared."""
        api = self.suite.apis[name]
        return self.suite.blueprints[api.app].seconds.get(api.name, int(api.changes))

    def _happen(self, number: int) -> None:
        """Let an event happen in the second in which it is due."""
        event, progress = self.schedule.events[number], self.schedule.progress[number]
        assert progress.due is not None
        self.seconds = max(self.seconds, progress.due)
        with self.state.happening(f"{event.name} {progress.times}") as written:
            done = self._do(event, progress.times)
            self._notify(written)
        self.schedule.happened(number, self.seconds, done)

    def _do(self, event: Event, times: int) -> bool:
        """Make the calls of an event, up to one that is refused; return whether none was."""
        deed, sent = event.deed(times), None
        try:
            while True:
                api, arguments = deed.send(sent)
                reply = self.reply_to(api, arguments, event.person)
                if self.witnessed is not None:
                    made = Called(api, arguments, reply.status, second=self.seconds)
                    self.witnessed.append((event.person, made))
                if not reply.ok:
                    deed.close()
                    return False
                sent = reply.body
        except StopIteration:
            return True

    def _notify(self, written: Sequence[Change]) -> None:
        me = self.state.get("supervisor.person", self.person)
        if me is None:
            return
        for change in written:
            told = notification(change, self.suite.blueprints, self.person, str(me["email"]))
            if told is not None:
                self.notifications.append(f"[{self.now[11:]}] {told}")

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
        return body

    def _caller(self, api: Api, given: dict[str, Any], person: int) -> Caller:
        """Return who calls; raises ApiError 401 where an app wants to know and does not."""
        nobody = self._seen_by(person)
        token = given.pop("access_token", None)
        if token is not None:
            found = holder(nobody, api.app, str(token))
            if found is None:
                raise ApiError(401, f"This access token is not valid for '{api.app}'.")
            return self._seen_by(found)
        if not person and self.suite.blueprints[api.app].private and api.name != "login":
            raise ApiError(401, f"Sign in with {api.app}.login, and pass the access_token.")
        return nobody

    def _seen_by(self, person: int) -> Caller:
        return Caller(self.state, self.suite.blueprints, person, self.now, self.advance)

    def _limit(self, app: str, person: int) -> None:
        most = self.suite.blueprints[app].changes_per_minute
        late = sum(1 for who, where, _ in self._late() if (who, where) == (person, app))
        if most is not None and late >= most:
            raise ApiError(429, f"'{app}' allows {most} changes a minute; wait a minute.")

    def _late(self) -> list[tuple[int, str, int]]:
        """Return the changes of the last minute."""
        return [made for made in self._recent if made[2] > self.seconds - MINUTE]


@lru_cache(maxsize=1024)
def _time(start: str, seconds: int) -> str:
    now = datetime.fromisoformat(start) + timedelta(seconds=seconds)
    return now.isoformat(" ", "minutes")


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
