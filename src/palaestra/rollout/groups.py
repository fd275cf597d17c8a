"""Groups in progress: the rollouts of one task, their asyncio tasks, and their quorum.

A group is complete when each of its jobs has an outcome. Where only some of them are
needed, the others are cancelled once the quorum of valid results is reached: running
rollouts stop, waiting ones never start. Cancelled rollouts are recorded as such, and
never scored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import TooManyFaults
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task

FAULTY_SHARE = 0.5  # more unscored episodes than this stop the run


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to run."""

    key: Key
    task: Task


@dataclass(slots=True)
class Group:
    """The jobs of one phase and group."""

    jobs: Sequence[Job]
    needed: int | None  # the quorum of valid results; None: all jobs
    ended: dict[Key, Episode] = field(default_factory=dict)
    started: set[Key] = field(default_factory=set)
    running: dict[Key, asyncio.Task[Any]] = field(default_factory=dict)
    stopped: set[Key] = field(default_factory=set)  # running ones that were cancelled

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.jobs)

    @property
    def has_quorum(self) -> bool:
        """Whether no further result is needed."""
        if self.needed is None:
            return False
        return sum(episode.outcome.scored for episode in self.ended.values()) >= self.needed

    def stop(self) -> list[Job]:
        """Cancel the running jobs; return those that have not started, which now never will."""
        for key, runner in self.running.items():
            if key not in self.stopped:
                self.stopped.add(key)
                runner.cancel()
        left = [job for job in self.jobs if job.key not in self.started]
        self.started.update(job.key for job in left)
        return left

    def episodes(self) -> list[Episode]:
        """Return the episodes of a complete group, in the order of its jobs."""
        return [self.ended[job.key] for job in self.jobs]


def grouped(jobs: Iterable[Job]) -> dict[tuple[str, int], list[Job]]:
    """Return the jobs of each phase and group, in their order."""
    found: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.key.phase, job.key.group), []).append(job)
    return found


@dataclass(slots=True)
class Faults:
    """The count of episodes that failed through no fault of the agent."""

    episodes: int = 0
    broken: int = 0
    last: Outcome | None = None

    def count(self, outcome: Outcome) -> None:
        """Count one outcome, unless it was cancelled."""
        if outcome.was_cancelled:
            return
        self.episodes += 1
        if not outcome.scored:
            self.broken += 1
            self.last = outcome

    @property
    def too_many(self) -> bool:
        return self.broken > FAULTY_SHARE * self.episodes

    def check(self) -> None:
        """Raise TooManyFaults if most episodes failed through no fault of the agent."""
        if self.too_many:
            assert self.last is not None
            raise TooManyFaults(
                f"{self.broken} of {self.episodes} episodes broke through no fault of the agent, "
                f"the last with {self.last}: {self.last.detail or 'no detail'}. Nothing was "
                "learned from them; fix the cause and resume the run."
            )
