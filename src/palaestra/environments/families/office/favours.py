"""What only a colleague may do, as far as a message names it: rows of theirs, found by their words.

review     approve a change of somebody else that is open
priority   give a ticket that they reported another priority
room       add somebody to a chat room that they opened
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.desk.scenario import Gesture
from palaestra.environments.families.desk.user import mentions
from palaestra.environments.families.office.colleague import Favour

CHANGE, REVIEW = "repository.change", "repository.review"
TICKET, ROOM, MEMBER = "tracker.ticket", "chat.room", "chat.member"
PRIORITIES = ("low", "normal", "high")
APPROVING = r"\b(approv\w*|review\w*)\b"


def favours(state: State, colleague: int, message: str) -> list[Favour]:
    """Return what a message may ask of a colleague that they may do; see the module."""
    found = (_reviews, _priorities, _members)
    return [one for kind in found for one in kind(state, colleague, message)]


def _reviews(state: State, colleague: int, message: str) -> Iterator[Favour]:
    for change in _named(state.find(CHANGE, status="open"), "title", message):
        if change["owner"] != colleague:
            given = {"change_id": change["id"], "verdict": "approve"}
            last = state.find(REVIEW, change_id=change["id"])[-1:]
            done = any(one["owner"] == colleague and one["verdict"] == "approve" for one in last)
            yield _favour(APPROVING, change["title"], "repository.review_change", given, done)


def _priorities(state: State, colleague: int, message: str) -> Iterator[Favour]:
    for ticket in _named(state.find(TICKET, owner=colleague), "title", message):
        for priority in PRIORITIES:
            asked = rf"(?s)(?=.*\bpriority\b)(?=.*\b{priority}\b)"
            given = {"ticket_id": ticket["id"], "priority": priority}
            done = ticket["priority"] == priority
            yield _favour(asked, ticket["title"], "tracker.update_ticket", given, done)


def _members(state: State, colleague: int, message: str) -> Iterator[Favour]:
    rooms = _named(state.find(ROOM, owner=colleague), "name", message)
    people = state.rows("supervisor.person") if rooms else []
    for room in rooms:
        for person in people:
            if person["id"] == colleague:
                continue
            if mentions(message, person["name"]) or mentions(message, person["email"]):
                given = {"room_id": room["id"], "email": person["email"]}
                done = bool(state.find(MEMBER, **given))
                yield _favour(r"\b(add|invite)\b", room["name"], "chat.add_member", given, done)


def _named(rows: list[Row], field: str, message: str) -> list[Row]:
    """Return the rows that a message names."""
    return [row for row in rows if mentions(message, row[field])]


def _favour(asked: str, topic: str, api: str, given: dict[str, Any], done: bool) -> Favour:
    return Favour(Gesture(asked, re.escape(topic), api, given), done)
