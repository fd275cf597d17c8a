"""The header of a finished episode: all of it but the calls and steps, as one row.

The columns that repeat what the JSON holds (task id, environment, reward …) serve
listings, which must not read whole episodes.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.graph import Call
from palaestra.core.journal import Event
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.store.codec import from_json, to_json

HEADER_COLUMNS = (
    'phase, "group", member, task, agent, observation, outcome, usage, progress, labels'
)
SUMMARY_COLUMNS = (
    'phase, "group", member, task_id, environment, outcome, reward, turns, sampled_tokens'
)


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What a listing shows of a finished episode."""

    key: Key
    task: str  # the task's id
    environment: str
    outcome: Outcome
    reward: float  # the episode's; meaningless where the outcome is not scored
    turns: int
    sampled_tokens: int


def header_row(episode: Episode) -> tuple[Any, ...]:
    """The values of HEADER_COLUMNS, then of those that only SUMMARY_COLUMNS has.

    Raises:
        ValueError: the task or the observation holds something that is no JSON.
    """
    return (
        episode.key.phase,
        episode.key.group,
        episode.key.member,
        to_json(episode.task),
        episode.agent,
        None if episode.observation is None else to_json(episode.observation),
        to_json(episode.outcome),
        to_json(episode.usage),
        json.dumps(episode.progress),  # a REAL column would lose the sign of -0.0
        json.dumps(episode.labels),
        episode.task.id,
        episode.task.environment,
        float(episode.reward),
        episode.usage.turns,
        episode.usage.sampled_tokens,
    )


def rebuilt(rows: Sequence[tuple[Any, ...]], events: Mapping[Key, list[Event]]) -> list[Episode]:
    """The episodes whose HEADER_COLUMNS are `rows`, with the events of each."""
    tasks = from_json(Task, [row[3] for row in rows])
    observations = from_json(Observation | None, [row[5] or "null" for row in rows])
    outcomes = from_json(Outcome, [row[6] for row in rows])
    usages = from_json(Usage, [row[7] for row in rows])
    episodes: list[Episode] = []
    for index, row in enumerate(rows):
        key = Key(*row[:3])
        happened = events.get(key, [])
        episode = Episode(
            key=key,
            task=tasks[index],
            agent=row[4],
            observation=observations[index],
            calls=tuple(event for event in happened if isinstance(event, Call)),
            steps=tuple(event for event in happened if isinstance(event, Step)),
            outcome=outcomes[index],
            usage=usages[index],
            progress=json.loads(row[8]),
            labels=json.loads(row[9]),
        )
        episodes.append(episode)
    return episodes


def summaries_of(rows: Sequence[tuple[Any, ...]]) -> list[EpisodeSummary]:
    """The summaries whose SUMMARY_COLUMNS are `rows`."""
    outcomes = from_json(Outcome, [row[5] for row in rows])
    return [
        EpisodeSummary(
            key=Key(*row[:3]),
            task=row[3],
            environment=row[4],
            outcome=outcome,
            reward=math.nan if row[6] is None else row[6],  # SQLite keeps NaN as NULL
            turns=row[7],
            sampled_tokens=row[8],
        )
        for row, outcome in zip(rows, outcomes, strict=True)
    ]


def events_in_order(episode: Episode) -> list[Event]:
    """Calls and steps as they happened: each step after the calls that were made before it."""
    events: list[Event] = []
    waiting = deque(episode.steps)
    for call in episode.calls:
        while waiting and waiting[0].calls_before <= call.index:
            events.append(waiting.popleft())
        events.append(call)
    return [*events, *waiting]
