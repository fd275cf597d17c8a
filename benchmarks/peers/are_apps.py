"""Calls of ARE's own tools per second (Froger et al. 2025), with a key of the state after each.

The apps hold what the person of a small world of ours has: mail, contacts, events. Only calls and
keys are timed, by the processor time of the process; a key is a hash of the apps' states, since ARE
has none. Without its event loop, which would take time of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from are.simulation.apps.calendar import CalendarApp
from are.simulation.apps.contacts import ContactsApp
from are.simulation.apps.email_client import Email, EmailClientApp

ADDRESS = "person{}@mail.example"
EPISODE = 60  # calls in one world


class World:
    """Three apps with people, messages and events."""

    def __init__(self, people: int, messages: int, events: int) -> None:
        self.mail, self.contacts, self.calendar = EmailClientApp(), ContactsApp(), CalendarApp()
        self.apps = (self.mail, self.contacts, self.calendar)
        self.people = people
        for number in range(people):
            self.contacts.add_new_contact(
                f"First{number}", f"Last{number}", email=ADDRESS.format(number)
            )
        for number in range(messages):
            words = " ".join(["rent", "for", "the", "summer", "house"] * 6)
            sender = ADDRESS.format(number % people)
            self.mail.add_email(Email(sender, [ADDRESS.format(0)], f"Letter {number}", words))
        for number in range(events):
            self.calendar.add_calendar_event(f"Meeting {number}", *_times(number), tag="work")
        named = [(tool.name.split("__")[-1], tool) for app in self.apps for tool in app.get_tools()]
        self.tools: dict[str, Callable[..., Any]] = dict(named)

    def calls(self, dice: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
        """Reads and changes, as in our tasks: half of the calls change something."""
        for number in itertools.count():
            other = dice.randrange(self.people)
            yield "search_contacts", {"query": f"First{other}"}
            letter = {"recipients": [ADDRESS.format(other)], "content": "See you soon."}
            yield "send_email", {"subject": f"Hello {number}", **letter}
            yield "search_emails", {"query": f"Letter {dice.randrange(9)}"}
            yield "add_new_contact", {"first_name": f"New{number}", "last_name": "Friend"}
            yield "read_today_calendar_events", {}
            start, end = _times(number)
            times = {"start_datetime": start, "end_datetime": end}
            yield "add_calendar_event", {"title": f"Tea {number}", **times}

    def key(self) -> str:
        states = [app.get_state() for app in self.apps]
        return hashlib.blake2b(json.dumps(states, default=str).encode()).hexdigest()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return calls per second, with keys and without."""
    spent = {True: 0.0, False: 0.0}
    calls = 0
    while spent[True] < request["seconds"]:
        world = World(request["people"], request["messages"], request["events"])
        for name, arguments in itertools.islice(world.calls(random.Random(calls)), EPISODE):
            started = time.process_time()
            world.tools[name](**arguments)
            called = time.process_time()
            world.key()
            spent[False] += called - started
            spent[True] += time.process_time() - started
            calls += 1
    return {"rate": calls / spent[True], "without keys": calls / spent[False]}


def _times(number: int) -> tuple[str, str]:
    day, hour = 1 + number % 28, number % 23
    return f"2026-03-{day:02} {hour:02}:00:00", f"2026-03-{day:02} {hour:02}:30:00"
