"""Parts of long episodes: any range of events, without reading the others.

An episode is a chain from its last event to its first (see `events.py`), and a viewer that
shows turn 70,000 must not walk all of it each time. `span_of` finds the rows of an episode once;
the other functions read only what they return. Calls and steps are numbered in order, so the
start of a turn is found by bisection. Nothing here writes.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from palaestra.core.budget import Usage
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Event, Key, Step
from palaestra.core.graph import Call
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.store.codec import EventRow, decode_events, from_json
from palaestra.store.damage import decoding
from palaestra.store.database import Database
from palaestra.store.events import OF_KEY, parts
from palaestra.store.header import HEADER_COLUMNS, rebuilt

_CHAIN = """WITH RECURSIVE chain (id) AS (
    SELECT ? UNION ALL
    SELECT event.before FROM chain CROSS JOIN event ON event.id = chain.id
    WHERE event.before < event.id)
SELECT id FROM chain"""
_RUN = "SELECT count(*) FROM event WHERE id > ? AND id <= ? AND before = id - 1"
_ROWS = "SELECT id, kind, body, prompt, completion, logprobs, tools FROM event WHERE id"
_BODIES = "SELECT body FROM event WHERE kind = '{}' AND id"
_LATEST = """WITH RECURSIVE chain (record, id, depth) AS (
    SELECT id, last, 0 FROM record WHERE phase = ?
    UNION ALL
    SELECT chain.record, event.before, depth + 1 FROM chain
    CROSS JOIN event ON event.id = chain.id WHERE event.before < event.id AND depth + 1 < ?)
SELECT record."group", record.member, event.id, event.body
FROM chain CROSS JOIN event ON event.id = chain.id CROSS JOIN record ON record.id = chain.record
WHERE event.kind = 'step'"""
_BATCH = 500  # ids in one statement


def warm() -> None:
    """Build the readers of episodes, half a second that the first reader then need not wait."""
    for kind in (Call, Step, Task, Observation | None, Outcome, Usage):
        from_json(kind, [], bytes.fromhex)


class StepFacts(NamedTuple):
    """The fields of a step for an overview of all steps."""

    step: int
    progress: float | None  # before it
    valid: bool
    reward: float


class CallFacts(NamedTuple):
    """The fields of a call for the tree of calls."""

    call: int
    parent: int | None
    role: str
    policy: str


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of the events of one episode, in the order in which they happened."""

    ids: Sequence[int]  # a range if they are contiguous, as most are
    calls: int
    steps: int


def span_of(database: Database, key: Key) -> Span | None:
    """Return the rows of an episode, finished or not; None without events."""
    row = _select(database, f"SELECT last, calls, steps FROM record{OF_KEY}", parts(key)).fetchone()
    if row is None or row[0] is None:
        return None
    last, calls, steps = row
    first = last - (calls + steps) + 1
    contiguous = _select(database, _RUN, (first, last)).fetchone()[0]
    if contiguous == calls + steps - 1:
        return Span(range(first, last + 1), calls, steps)
    found = array("q", (number for (number,) in _select(database, _CHAIN, (last,))))
    found.reverse()
    return Span(found, calls, steps)


def header_of(database: Database, key: Key) -> Episode | None:
    """Return the finished episode without its calls and steps; None if it has not finished."""
    rows = _select(database, f"SELECT {HEADER_COLUMNS} FROM episode{OF_KEY}", parts(key)).fetchall()
    return _rebuilt(database, rows)[0] if rows else None


def reward_of(database: Database, key: Key) -> float | None:
    """Return the reward of a finished episode; None if it is NaN or has not finished."""
    row = _select(database, f"SELECT reward FROM episode{OF_KEY}", parts(key)).fetchone()
    return None if row is None else row[0]


def headers_of(database: Database, phase: str, group: int) -> list[Episode]:
    """Return the finished episodes of one group without their calls and steps, by member."""
    rows = _select(
        database,
        f'SELECT {HEADER_COLUMNS} FROM episode WHERE phase = ? AND "group" = ? ORDER BY member',
        (phase, group),
    ).fetchall()
    return _rebuilt(database, rows)


def phase_headers(database: Database, phase: str) -> list[Episode]:
    """Return the finished episodes of exactly that phase without their calls and steps."""
    rows = _select(
        database,
        f'SELECT {HEADER_COLUMNS} FROM episode WHERE phase = ? ORDER BY "group", member',
        (phase,),
    ).fetchall()
    return _rebuilt(database, rows)


def group_episodes(database: Database, phase: str, group: int) -> list[Episode]:
    """Return the whole finished episodes of one group, by member."""
    found: list[Episode] = []
    for episode in headers_of(database, phase, group):
        span = span_of(database, episode.key)
        events = [] if span is None else events_between(database, span, 0, len(span.ids))
        found.append(with_events(episode, events))
    return found


def with_events(header: Episode, events: Sequence[Event]) -> Episode:
    """Return the episode with these calls and steps."""
    calls = tuple(event for event in events if isinstance(event, Call))
    steps = tuple(event for event in events if isinstance(event, Step))
    return replace(header, calls=calls, steps=steps)


def count_of(database: Database, phase: str) -> int:
    """Return the number of finished episodes of exactly that phase."""
    found: int = _select(
        database, "SELECT count(*) FROM episode WHERE phase = ?", (phase,)
    ).fetchone()[0]
    return found


def events_between(database: Database, span: Span, start: int, stop: int) -> list[Event]:
    """Return the events at positions `start` … `stop - 1` of the episode."""
    rows = [row[1:] for row in _among(database, _ROWS, span.ids[max(0, start) : max(0, stop)])]
    with decoding(database.path):
        return decode_events([EventRow(*row) for row in rows], database.blobs)


def turn_events(database: Database, span: Span, start: int, stop: int) -> list[Event]:
    """Return the events of the turns `start` … `stop - 1`: each step, and the calls before it.

    Calls after the last step belong to a turn of their own, which has no step.
    """
    end = len(span.ids) if stop > span.steps else position_after(database, span, stop)
    return events_between(database, span, position_after(database, span, start), end)


def position_after(database: Database, span: Span, steps: int) -> int:
    """Return the number of events up to the step with that count."""
    if steps <= 0:
        return 0
    if steps > span.steps:
        return len(span.ids)
    return bisect_left(_StepCounts(database, span), steps)


def step_facts(database: Database, span: Span) -> Iterator[StepFacts]:
    """Yield the facts of every step; about a second for 150,000."""
    for (body,) in _among(database, _BODIES.format("step"), span.ids):
        with decoding(database.path):
            found = json.loads(body)  # SQLite's own reader does not support NaN
            happened, before = found["transition"], found["before"]["progress"]
            facts = StepFacts(found["index"], before, happened["valid"], happened["reward"])
        yield facts


def step_bodies(database: Database, span: Span, most: int | None = None) -> Iterator[str]:
    """Yield the stored form of every step in order, of the first `most` only if there is a bound.

    Calls are not read.
    """
    rows = _among(database, _BODIES.format("step"), span.ids)
    yield from (body for (body,) in islice(rows, most))


def call_facts(database: Database, span: Span) -> Iterator[CallFacts]:
    """Yield the facts of every call."""
    for (body,) in _among(database, _BODIES.format("call"), span.ids):
        with decoding(database.path):
            found = json.loads(body)
            facts = CallFacts(found["index"], found["parent"], found["role"], found["policy"])
        yield facts


def latest_steps(database: Database, phase: str, events: int = 12) -> dict[Key, list[Step]]:
    """Return the steps among the last `events` events of each episode of a phase, in order."""
    found: dict[Key, list[tuple[int, str]]] = {}
    for group, member, number, body in _select(database, _LATEST, (phase, events)):
        found.setdefault(Key(phase, group, member), []).append((number, body))
    flat = [EventRow("step", body, None, None, None) for of in found.values() for _, body in of]
    with decoding(database.path):
        decoded = iter(decode_events(flat, database.blobs))
    steps: dict[Key, list[Step]] = {}
    for key, rows in found.items():
        numbered = [(number, next(decoded)) for number, _ in rows]
        numbered.sort(key=lambda pair: pair[0])
        steps[key] = [step for _, step in numbered if isinstance(step, Step)]
    return steps


# ── details ──────────────────────────────────────────────────────────────────


class _StepCounts(Sequence[int]):
    """The number of steps among the first n events, for each n; read on demand."""

    def __init__(self, database: Database, span: Span) -> None:
        self._database, self._span = database, span

    def __len__(self) -> int:
        return len(self._span.ids) + 1

    def __getitem__(self, events: Any) -> Any:
        if events == 0:
            return 0
        row = _select(
            self._database,
            "SELECT kind, body FROM event WHERE id = ?",
            (self._span.ids[events - 1],),
        ).fetchone()
        with decoding(self._database.path):
            kind, body = row
            index = json.loads(body)["index"]
        return index + 1 if kind == "step" else events - 1 - index


def _among(database: Database, query: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with those ids, which are increasing."""
    if isinstance(ids, range):
        if ids:
            yield from _select(database, f"{query} BETWEEN ? AND ? ORDER BY id", (ids[0], ids[-1]))
        return
    for start in range(0, len(ids), _BATCH):
        some = tuple(ids[start : start + _BATCH])
        marks = ",".join("?" * len(some))
        yield from _select(database, f"{query} IN ({marks}) ORDER BY id", some)


def _rebuilt(database: Database, rows: Sequence[tuple[Any, ...]]) -> list[Episode]:
    with decoding(database.path):
        return rebuilt(rows, {}, database.blobs.find)


def _select(database: Database, query: str, values: Sequence[Any]) -> sqlite3.Cursor:
    return database._connection.execute(query, values)
