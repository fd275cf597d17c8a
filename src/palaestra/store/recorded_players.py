"""The results of several players in recorded episodes, for listings.

They follow from an episode's steps (`Episode.players`). Of the episodes of an environment with a
single player, which most are, one step is read: that of the first episode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from palaestra.core.episode import Episode, PlayerResult
from palaestra.store.codec import EventRow, decode_events
from palaestra.store.damage import decoding
from palaestra.store.database import Database
from palaestra.store.ranges import Span, phase_headers, span_of, step_bodies, with_events

Played = tuple[Episode, dict[str, PlayerResult]]
"""An episode without its calls and steps, and the results of its players."""


def players_of(database: Database, header: Episode) -> dict[str, PlayerResult]:
    """Return the results of several players in a finished episode; empty for a single player."""
    span = span_of(database, header.key)
    if span is None or not _several(database, span):
        return {}
    rows = [EventRow("step", body, None, None, None) for body in step_bodies(database, span)]
    with decoding(database.path):
        return with_events(header, decode_events(rows, database.blobs)).players


def players_in(database: Database, headers: Sequence[Episode]) -> list[Played]:
    """Return those of the episodes that several players played, with their results."""
    found: list[Played] = []
    single: set[str] = set()  # environments in which a single player acts
    for header in headers:
        environment = header.task.environment
        if environment in single:
            continue
        players = players_of(database, header)
        if players:
            found.append((header, players))
        elif header.usage.turns:
            single.add(environment)
    return found


def phase_players(database: Database, phase: str) -> list[Played]:
    """Return what `players_in` does, of the finished episodes of exactly that phase."""
    return players_in(database, phase_headers(database, phase))


def _several(database: Database, span: Span) -> bool:
    """Return whether the first step of an episode names the player that acts."""
    first = next(step_bodies(database, span, most=1), None)
    if first is None:
        return False
    with decoding(database.path):
        return json.loads(first)["before"].get("turn") is not None
