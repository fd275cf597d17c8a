"""The results of several players in recorded episodes, for listings.

They follow from an episode's steps (`Episode.players`). Of an environment with a single player, as
most have, one step is read in each phase: that of the first episode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from palaestra.core.episode import Episode, Key, PlayerResult
from palaestra.store.codec import EventRow, decode_events
from palaestra.store.damage import decoding
from palaestra.store.database import Database
from palaestra.store.ranges import Span, header_of, phase_headers, span_of, step_bodies, with_events

_FIRST = """SELECT phase, environment, "group", member, min(id) FROM episode
    WHERE turns > 0{} GROUP BY phase, environment ORDER BY min(id)"""

Played = tuple[Episode, dict[str, PlayerResult]]
"""An episode without its calls and steps, and the results of its players."""


def players_of(database: Database, header: Episode) -> dict[str, PlayerResult]:
    """Return the results of several players in a finished episode; empty for a single player."""
    found = _game(database, header)
    return {} if found is None else found.players


def game_environments(database: Database, phase: str = "") -> dict[str, set[str]]:
    """Return the environments with several players by phase, of finished episodes.

    One episode of each environment in each phase is looked at.

    Args:
        database: of the run.
        phase: only this one; empty: every phase.
    """
    values = (phase,) if phase else ()
    query = _FIRST.format(" AND phase = ?" if phase else "")
    rows = database._connection.execute(query, values).fetchall()
    found: dict[str, set[str]] = {}
    for name, environment, group, member, _ in rows:
        span = span_of(database, Key(name, group, member))
        if span is not None and has_several_players(database, span):
            found.setdefault(name, set()).add(environment)
    return found


def phase_players(database: Database, phase: str) -> list[Played]:
    """Return the finished games of exactly that phase, with the results of their players."""
    return [(replace(game, steps=()), game.players) for game in phase_games(database, phase)]


def phase_games(database: Database, phase: str) -> Iterator[Episode]:
    """Yield the finished games of exactly that phase with their steps, without their calls."""
    environments = game_environments(database, phase).get(phase, set())
    for header in phase_headers(database, phase) if environments else ():
        if header.task.environment in environments:
            game = _game(database, header)
            yield header if game is None else game


def players_by_key(database: Database, keys: Sequence[Key]) -> dict[Key, dict[str, PlayerResult]]:
    """Return the results of players in those of the finished episodes that are games."""
    games = {phase: game_environments(database, phase) for phase in {key.phase for key in keys}}
    found: dict[Key, dict[str, PlayerResult]] = {}
    for key in keys:
        header = header_of(database, key) if games[key.phase] else None
        if header is not None and header.task.environment in games[key.phase][key.phase]:
            found[key] = players_of(database, header)
    return found


def has_several_players(database: Database, span: Span) -> bool:
    """Return whether the first step of an episode names the player that acts."""
    first = next(step_bodies(database, span, most=1), None)
    if first is None:
        return False
    with decoding(database.path):
        return json.loads(first)["before"].get("turn") is not None


def _game(database: Database, header: Episode) -> Episode | None:
    """Return an episode of several players with its steps; None of a single player."""
    span = span_of(database, header.key)
    if span is None or not has_several_players(database, span):
        return None
    rows = [EventRow("step", body, None, None, None) for body in step_bodies(database, span)]
    with decoding(database.path):
        return with_events(header, decode_events(rows, database.blobs))
