"""Queries over many episodes of a run, without reading whole episodes.

Queries only read, and use no index of their own, which would slow down the writing run. A query
over 100,000 episodes scans a table once, so it accepts a time limit: it then returns what it has
found, marked as incomplete.
"""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from palaestra.core.episode import Key
from palaestra.store.damage import decoding
from palaestra.store.database import Database
from palaestra.store.events import OF_KEY, parts
from palaestra.store.header import SUMMARY_COLUMNS, EpisodeSummary, summaries_of

SORTS = {
    "finished": "id",
    "episode": 'phase {0}, "group" {0}, member',
    "task": "task_id {0}, id",
    "environment": "environment {0}, id",
    "outcome": "outcome {0}, id",
    "reward": "reward {0}, id",
    "turns": "turns {0}, id",
    "tokens": "sampled_tokens {0}, id",
}
"""The orders of episodes; `{0}` is the place of the direction."""

MEASURES = {"reward": "reward", "turns": "turns", "tokens": "sampled_tokens"}
RELATIONS = ("<=", ">=", "<", ">", "=")
_SOLVED = 'substr(outcome, 1, 19) = \'{"status":"success"\''
_SCORED = (
    '(substr(outcome, 1, 17) <> \'{"status":"error"\' '
    "OR json_extract(outcome, '$.owner') = 'agent')"
)
_EVERY = 2000  # steps of SQLite's virtual machine between two checks of the clock


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of episodes; empty fields do not filter."""

    phase: str = ""  # this one, or all that start with it and a slash
    outcome: str = ""  # its string form: "failure", "truncated(turns)"; or its first word
    solved: bool | None = None
    environment: str = ""  # a substring of its id
    task: str = ""  # a substring of its id
    agent: str = ""  # a substring of its name
    text: str = ""  # in the task, the first observation or the labels; case-insensitive
    bounds: tuple[tuple[str, str, float], ...] = ()  # of MEASURES, RELATIONS
    keys: frozenset[Key] | None = None  # only these


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of the episodes that match a filter, in order."""

    ids: array[int]
    complete: bool = True  # false: the time limit was reached


@dataclass(frozen=True, slots=True)
class Row:
    """An episode in a listing."""

    id: int  # in the order in which episodes finished
    summary: EpisodeSummary
    agent: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """The results of the episodes of one task in one phase."""

    phase: str
    group: int
    environment: str
    episodes: int
    scored: int
    solved: int
    reward: float  # sum over the scored episodes
    turns: int  # sum over the scored episodes
    sampled_tokens: int  # sum over all episodes

    @property
    def success(self) -> float | None:
        """The share of solved episodes among the scored ones; None without one."""
        return self.solved / self.scored if self.scored else None


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run has recorded so far."""

    ended: dict[tuple[str, str], int]  # episodes, by status and by whose fault it was ("": none)
    begun: int  # episodes with events and without an end
    turns: int  # of all episodes, begun ones included
    sampled_tokens: int  # of ended episodes
    prompt_tokens: int  # likewise, beyond those already cached


class Queries:
    """Queries of a database that was opened for reading, in the same thread."""

    def __init__(self, database: Database) -> None:
        self._connection, self._file = database._connection, database.path

    def ids(self, filter: Filter, sort: str = "finished", *, seconds: float | None = None) -> Found:
        """Return the episodes that match `filter`, ordered by a name of SORTS; "-" reverses it."""
        where, values = _where(filter)
        order = SORTS[sort.removeprefix("-")]
        direction = "DESC" if sort.startswith("-") else "ASC"
        statement = f"SELECT id FROM episode{where} ORDER BY {order.format(direction)} {direction}"
        found: array[int] = array("q")
        complete = True
        try:
            with self._timed(seconds):
                found.extend(id for (id,) in self._connection.execute(statement, values))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            complete = False
        return Found(found, complete)

    def rows(self, ids: Sequence[int]) -> list[Row]:
        """Return the listings of those episodes, in that order; deleted ones are left out."""
        marks = ", ".join("?" * len(ids))
        selected = self._connection.execute(
            f"SELECT {SUMMARY_COLUMNS}, id, agent, usage FROM episode WHERE id IN ({marks})",
            list(ids),
        ).fetchall()
        with decoding(self._file):
            known = {
                row[-3]: Row(row[-3], summary, row[-2], json.loads(row[-1])["seconds"])
                for row, summary in zip(selected, summaries_of(selected), strict=True)
            }
        return [known[id] for id in ids if id in known]

    def phases(self) -> dict[str, int]:
        """Return the number of episodes of each phase, in the order of their first one."""
        return dict(
            self._connection.execute(
                "SELECT phase, count(*) FROM episode GROUP BY phase ORDER BY min(id)"
            )
        )

    def standings(self, phase: str = "") -> list[TaskStanding]:
        """Return the results of each task of each phase, or of one phase; see `Filter.phase`."""
        where, values = _where(Filter(phase=phase))
        statement = f"""SELECT phase, "group", min(environment), count(*), sum(scored), sum(solved),
            sum(CASE WHEN scored THEN reward ELSE 0 END), sum(scored * turns), sum(sampled_tokens)
            FROM (SELECT phase, "group", environment, {_SCORED} AS scored, {_SOLVED} AS solved,
                coalesce(reward, 0) AS reward, turns, sampled_tokens FROM episode{where})
            GROUP BY phase, "group" ORDER BY phase, "group" """
        return [TaskStanding(*row) for row in self._connection.execute(statement, values)]

    def counts(self) -> Counts:
        """Count episodes, turns and tokens, without reading an episode."""
        execute = self._connection.execute
        rows = execute(
            """SELECT json_extract(outcome, '$.status'), json_extract(outcome, '$.owner'), count(*),
            sum(sampled_tokens), sum(json_extract(usage, '$.prompt_tokens'))
            FROM episode GROUP BY 1, 2"""
        ).fetchall()
        begun = execute(
            """SELECT count(*) FROM record LEFT JOIN episode USING (phase, "group", member)
            WHERE episode.id IS NULL"""
        ).fetchone()
        (turns,) = execute("SELECT coalesce(sum(steps), 0) FROM record").fetchone()
        return Counts(
            {(status, owner or ""): count for status, owner, count, _, _ in rows},
            begun[0],
            turns,
            sum(row[3] for row in rows),
            sum(row[4] for row in rows),
        )

    def events(self, key: Key) -> int:
        """Return the number of events of an episode, finished or not; 0 without that episode."""
        row = self._connection.execute(
            f"SELECT calls + steps FROM record{OF_KEY}", parts(key)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def has(self, key: Key) -> bool:
        """Return whether that episode exists, finished or not."""
        found = self._connection.execute(f"SELECT 1 FROM episode{OF_KEY}", parts(key)).fetchone()
        return found is not None or self.events(key) > 0

    @contextmanager
    def _timed(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        end = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: int(time.monotonic() > end), _EVERY)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)


def parse_key(text: str) -> Key | None:
    """Parse a key, e.g. test/rl/17.0; the member is 0 by default. None: invalid."""
    phase, _, numbers = text.rpartition("/")
    group, _, member = numbers.partition(".")
    if not (phase and _small(group) and (_small(member) or not member)):
        return None
    return Key(phase, int(group), int(member or 0))


def _small(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _where(filter: Filter) -> tuple[str, list[object]]:
    """Return the filter as SQL, with its values."""
    tests: list[str] = []
    values: list[object] = []

    def add(test: str, *of: object) -> None:
        tests.append(test)
        values.extend(of)

    if filter.phase:
        prefix = filter.phase.rstrip("/") + "/"
        add(
            "(phase = ? OR (phase >= ? AND phase < ?))",
            filter.phase.rstrip("/"),
            prefix,
            prefix[:-1] + "0",  # the character after the slash
        )
    if filter.outcome:
        start = _outcome_start(filter.outcome)
        add("substr(outcome, 1, ?) = ?", len(start), start)
    if filter.solved is not None:
        add(_SOLVED if filter.solved else f"NOT {_SOLVED}")
    parts = ("environment", filter.environment), ("task_id", filter.task), ("agent", filter.agent)
    for column, part in parts:
        if part:
            add(f"{column} LIKE ? ESCAPE '!'", _like(part))
    if filter.text:
        pattern = _like(json.dumps(filter.text, ensure_ascii=False)[1:-1])
        escaped_pattern = _like(json.dumps(filter.text)[1:-1])
        add(
            "(task LIKE ? ESCAPE '!' OR observation LIKE ? ESCAPE '!' OR labels LIKE ? ESCAPE '!')",
            pattern,
            pattern,
            escaped_pattern,
        )
    for measure, relation, bound in filter.bounds:
        if relation not in RELATIONS:
            raise ValueError(f"'{relation}' compares nothing")
        add(f"{MEASURES[measure]} {relation} ?", bound)
    if filter.keys is not None:
        rows = [[key.phase, key.group, key.member] for key in filter.keys]
        add(
            "(phase, \"group\", member) IN (SELECT json_extract(value, '$[0]'), "
            "json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?))",
            json.dumps(rows),
        )
    return (" WHERE " + " AND ".join(tests) if tests else ""), values


def _outcome_start(printed: str) -> str:
    """Return the prefix of the JSON of an outcome with that string form; see `Outcome.__str__`."""
    status, _, inner = printed.rstrip(")").partition("(")
    start = '{"status":' + json.dumps(status)
    if not inner:
        return start
    kind, _, owner = inner.partition(", ")
    if status == "error":
        start += f',"limit":null,"kind":{json.dumps(kind, ensure_ascii=False)}'
        return start + (f',"owner":{json.dumps(owner)}' if owner else "")
    return start + f',"limit":{json.dumps(kind)}'


def _like(part: str) -> str:
    for sign in "!%_":
        part = part.replace(sign, "!" + sign)
    return f"%{part.encode('utf-8', 'replace').decode()}%"
