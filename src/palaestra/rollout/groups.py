"""Groups under way: the rollouts of one task, who lives them, and when there are enough.

A group is complete when each of its jobs has an outcome. Where only some of them are
needed, the others are cancelled as soon as so many have a valid result: those that live
are stopped where they are, those that wait never begin. What was cancelled is recorded
as such, and never scored.
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
    """One rollout to be made."""

    key: Key
    task: Task


@dataclass(slots=True)
class Group:
    """The jobs of one phase and group."""

    jobs: Sequence[Job]
    needed: int | None  # so many valid results are enough; None: all jobs count
    ended: dict[Key, Episode] = field(default_factory=dict)
    begun: set[Key] = field(default_factory=set)
    living: dict[Key, asyncio.Task[Any]] = field(default_factory=dict)  # by whom
    stopped: set[Key] = field(default_factory=set)  # of those that live

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.jobs)

    @property
    def enough(self) -> bool:
        """Whether no further result is needed."""
        if self.needed is None:
            return False
        return sum(episode.outcome.scored for episode in self.ended.values()) >= self.needed

    def stop(self) -> list[Job]:
        """Cancel those that live; returns the jobs that have not begun, which now never will."""
        for key, runner in self.living.items():
            if key not in self.stopped:
                self.stopped.add(key)
                runner.cancel()
        left = [job for job in self.jobs if job.key not in self.begun]
        self.begun.update(job.key for job in left)
        return left

    def episodes(self) -> list[Episode]:
        """The episodes of a complete group, in the order of its jobs."""
        return [self.ended[job.key] for job in self.jobs]


def grouped(jobs: Iterable[Job]) -> dict[tuple[str, int], list[Job]]:
    """The jobs of each phase and group, in their order."""
    found: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.key.phase, job.key.group), []).append(job)
    return found


@dataclass(slots=True)
class Faults:
    """How many episodes broke through no fault of the agent."""

    episodes: int = 0
    broken: int = 0
    last: Outcome | None = None

    def count(self, outcome: Outcome) -> None:
        """Take one outcome into account; what was cancelled says nothing."""
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
        """Raise TooManyFaults if most episodes broke."""
        if self.too_many:
            assert self.last is not None
            raise TooManyFaults(
                f"{self.broken} of {self.episodes} episodes broke through no fault of the agent, "
                f"the last with {self.last}: {self.last.detail or 'no detail'}. Nothing was "
                "learned from them; mend the cause and resume the run."
            )
