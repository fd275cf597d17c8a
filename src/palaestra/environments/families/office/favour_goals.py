"""Goals that need something which only a colleague may do: they must be asked for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    swapped,
)
from palaestra.environments.families.apps.composing.stock_atoms import named_contacts
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.office.colleagues_app import ASK
from palaestra.environments.families.office.fact_goals import address_of, colleagues_of
from palaestra.environments.families.office.favours import (
    CHANGE,
    MEMBER,
    PRIORITIES,
    REVIEW,
    ROOM,
    TICKET,
)


class ApproveAndMerge(Atom):
    """A change of one's own, which nobody may review but others."""

    name = "get a change approved"
    apps = frozenset({"colleagues", "repository"})
    words = (
        "Have {name} approve my change '{title}', then merge it.",
        "My change '{title}' waits for {name}. Get it approved, and merge it.",
    )

    def _titles(self, world: World) -> list[str]:
        """Return one's own open changes that their last review does not approve of."""
        state = world.state
        last = {row["change_id"]: row["verdict"] for row in state.rows(REVIEW)}
        own = state.find(CHANGE, owner=MAIN, status="open")
        return [row["title"] for row in own if last.get(row["id"]) != "approve"]

    def _others(self, slots: Slots, world: World) -> list[str]:
        names = [row["name"] for row in colleagues_of(world)]
        return [name for name in names if name != slots["name"]]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        titles = self._titles(world)
        name = rng.choice(colleagues_of(world))["name"]
        return {"title": rng.choice(titles), "name": name} if titles else None

    def steps(self, slots: Slots) -> Steps:
        email = yield from address_of(slots["name"])
        yield call(ASK, email=email, message=f"Please approve the change '{slots['title']}'.")
        if slots.get("merges", True):
            change = yield from first("repository.search_changes", query=slots["title"])
            yield call("repository.merge_change", change_id=change["id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = swapped(slots, title=self._titles(world), name=self._others(slots, world))
        return [*others, {**slots, "merges": False}]


class ApproveByAnybody(ApproveAndMerge):
    """The same, where it does not matter who approves."""

    name = "get a change approved by anybody"
    words = (
        "Have one of my colleagues approve my change '{title}', no matter who, and merge it.",
        "Get my change '{title}' approved by any colleague, then merge it.",
    )

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [*swapped(slots, title=self._titles(world)), {**slots, "merges": False}]

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        return [{**slots, "name": name} for name in self._others(slots, world)]


class SetPriority(Atom):
    """A ticket's priority, which only its reporter sets."""

    name = "get a priority changed"
    apps = frozenset({"colleagues", "tracker"})
    words = (
        "The ticket '{title}' should have {priority} priority. Whoever reported it must set that; "
        "see to it.",
        "Ask the reporter of the ticket '{title}' to give it {priority} priority.",
    )

    def _titles(self, world: World) -> list[str]:
        owners = {row["owner"] for row in colleagues_of(world)}
        rows = [row for row in world.state.rows(TICKET) if row["owner"] in owners]
        return [row["title"] for row in findable(world, TICKET, "title", rows)]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        titles = self._titles(world)
        if not titles:
            return None
        (ticket,) = world.state.find(TICKET, title=rng.choice(titles))
        others = [priority for priority in PRIORITIES if priority != ticket["priority"]]
        return {"title": ticket["title"], "priority": rng.choice(others)}

    def steps(self, slots: Slots) -> Steps:
        ticket = yield from first("tracker.search_tickets", query=slots["title"])
        given = f"Please give the ticket '{slots['title']}' {slots['priority']} priority."
        yield call(ASK, email=ticket["reporter"], message=given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, title=self._titles(world), priority=PRIORITIES)


class AddToRoom(Atom):
    """A new member of a room, whom only its opener adds."""

    name = "get somebody added to a room"
    apps = frozenset({"colleagues", "chat"})
    words = (
        "Have {host}, who opened the chat room '{room}', add {name} to it.",
        "{name} should be in the chat room '{room}'. Ask {host} to add them.",
    )

    def _names(self, slots: Slots, world: World) -> list[str]:
        """Return the contacts who are not in the room."""
        (room,) = world.state.find(ROOM, name=slots["room"])
        there = {row["email"] for row in world.state.find(MEMBER, room_id=room["id"])}
        contacts = [row for row in named_contacts(world) if row["email"] not in there]
        return [row["name"] for row in contacts if row["name"] != slots["host"]]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        hosts = {row["owner"]: row["name"] for row in colleagues_of(world)}
        rooms = [row for row in world.state.rows(ROOM) if row["owner"] in hosts]
        if not rooms:
            return None
        room = rng.choice(rooms)
        slots = {"room": room["name"], "host": hosts[room["owner"]]}
        names = self._names(slots, world)
        return {**slots, "name": rng.choice(names)} if names else None

    def steps(self, slots: Slots) -> Steps:
        email = yield from address_of(slots["host"])
        given = f"Please add {slots['name']} to the chat room '{slots['room']}'."
        yield call(ASK, email=email, message=given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        hosts = [row["name"] for row in colleagues_of(world)]
        return swapped(slots, name=self._names(slots, world), host=hosts)


KINDS: tuple[type[Atom], ...] = (ApproveAndMerge, ApproveByAnybody, SetPriority, AddToRoom)
