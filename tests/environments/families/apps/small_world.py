"""A small world of the timed apps, and events in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from palaestra.environments.families.apps.composing.goal import MAIN, call
from palaestra.environments.families.apps.events import Deed, Event, Timing
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.timed.clock_app import timed_suite
from palaestra.environments.families.apps.world import World


@cache
def template() -> Template:
    return world_template(stock_suite(), "small", 1)


def world(events: Sequence[Event] = ()) -> World:
    return World(timed_suite(), template(), START, events, MAIN)


def address(person: int) -> str:
    found = world().state.get("supervisor.person", person)
    assert found is not None
    return str(found["email"])


def mail(name: str, timing: Timing, person: int = 2) -> Event:
    """Return an event that writes a mail, numbered, to the person for whom an agent acts."""

    def write(times: int) -> Deed:
        text = {"subject": f"{name} {times}", "body": "Hello."}
        yield call("mail.send_message", recipient=address(MAIN), **text)

    return Event(name, person, timing, write)


def subjects(made: World) -> list[str]:
    """Return the subjects of the new mails, in the order in which they came."""
    first = world().state.rows("mail.message")[-1]["id"]
    rows = made.state.rows("mail.message", "owner = ? AND id > ?", [MAIN, first])
    return [row["subject"] for row in rows]
