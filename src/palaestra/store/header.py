"""The header of a finished episode: everything except its calls and steps, as one row.

The columns that repeat fields of the JSON (task id, environment, reward …) are for
listings, which must not read whole episodes.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Event, Key, Step
from palaestra.core.graph import Call
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
    """The fields of a finished episode in a listing."""

    key: Key
    task: str  # the task's id
    environment: str
    outcome: Outcome
    reward: float  # the episode's; meaningless where the outcome is not scored
    turns: int
    sampled_tokens: int


def header_row(episode: Episode, *, external_images: bool = False) -> tuple[Any, ...]:
    """Return the values of HEADER_COLUMNS, then of the columns that only SUMMARY_COLUMNS has.

    The bytes of images are in the row unless `external_images`.

    Raises:
        ValueError: the task or the observation contains something that is not JSON.
    """
    return (
        episode.key.phase,
        episode.key.group,
        episode.key.member,
        to_json(episode.task),
        episode.agent,
        None
        if episode.observation is None
        else to_json(episode.observation, external_images=external_images),
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


def rebuilt(
    rows: Sequence[tuple[Any, ...]],
    events: Mapping[Key, list[Event]],
    find: Callable[[str], bytes] | None = None,
) -> list[Episode]:
    """Return the episodes whose HEADER_COLUMNS are `rows`, with their events.

    `find` returns the bytes of images by their hash.
    """
    tasks = from_json(Task, [row[3] for row in rows])
    observations = from_json(Observation | None, [row[5] or "null" for row in rows], find)
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
    """Return the summaries whose SUMMARY_COLUMNS are `rows`."""
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
    """Return calls and steps in order: each step after the calls that were made before it."""
    events: list[Event] = []
    waiting = deque(episode.steps)
    for call in episode.calls:
        while waiting and waiting[0].calls_before <= call.index:
            events.append(waiting.popleft())
        events.append(call)
    return [*events, *waiting]
