"""Rollout sources: each step's rollouts, made ahead in turn or asynchronously.

Groups of rollouts are numbered in the order of their start, `tasks` of them per step.
`SynchronousSource` rolls out the groups of step s + k before step s is trained: the data flow of
an asynchronous run, made deterministic. `AsynchronousSource` is asynchronous training (AReaL; Fu
et al. 2025): groups are rolled out while the learner works, started as soon as the staleness bound
allows (`staleness_capacity`), and trained on as soon as they are complete, but none more than
`staleness` versions after the version it was started with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Self

from palaestra.core.episode import Episode
from palaestra.learning.loop.staleness import staleness_capacity
from palaestra.rollout.runner import Job

SampleGroups = Callable[[int], list[list[Job]]]
"""Return the groups of a step (1-based), from what was known `staleness` steps earlier."""

RollOut = Callable[[int, Sequence[Job]], Awaitable[list[Episode]]]
"""Return the episodes of a step's jobs."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a source that a resumed run needs; plain lists, so that it can be stored."""

    taken: Sequence[int] = ()  # numbers of the groups that were trained on
    begun: Sequence[tuple[int, int]] = ()  # other groups that were started: (number, version)


class SynchronousSource:
    """Source that rolls out whole steps, `staleness` steps ahead."""

    def __init__(
        self, sample_groups: SampleGroups, roll_out: RollOut, staleness: int, steps: int
    ) -> None:
        self._sample_groups, self._roll_out = sample_groups, roll_out
        self._staleness, self._steps = staleness, steps
        self._ready: dict[int, list[Episode]] = {}
        self.state = SourceState()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ready.clear()

    async def take(self, step: int) -> list[Episode]:
        """Return the rollouts to train on at a step; call it with steps in order."""
        for ahead in range(step, min(step + self._staleness, self._steps) + 1):
            if ahead not in self._ready:
                jobs = [job for group in self._sample_groups(ahead) for job in group]
                self._ready[ahead] = await self._roll_out(ahead, jobs)
        return self._ready.pop(step)


class AsynchronousSource:
    """Source that rolls out groups continuously, within a bound on their staleness.

    An asynchronous context manager: leaving it cancels the running groups; what they have
    recorded stays.
    """

    def __init__(
        self,
        sample_groups: SampleGroups,
        roll_out: RollOut,
        *,
        staleness: int,
        tasks: int,
        steps: int,
        together: int,
        version: int = 0,
        state: SourceState | None = None,
    ) -> None:
        """Start where an earlier source stopped, or at the beginning.

        Args:
            sample_groups: returns the groups of a step.
            roll_out: makes a group's episodes.
            staleness: most versions between a group's start and its training, at least 1.
            tasks: groups per step.
            steps: no group of a later step is started.
            together: most groups running at once.
            version: number of steps trained so far.
            state: of the earlier source.
        """
        self._sample_groups, self._roll_out = sample_groups, roll_out
        self._staleness, self._tasks, self._together = staleness, tasks, together
        self._last = steps * tasks
        self._version = version
        earlier = state or SourceState()
        self._taken = set(earlier.taken)
        self._next = 0
        self._begun = dict(earlier.begun)  # version at the start of those that are not taken
        self._running: dict[int, asyncio.Task[list[Episode]]] = {}  # complete ones included
        self._complete: list[int] = []  # of them, in the order of their completion
        self._sampled: tuple[int, list[list[Job]]] = (0, [])  # the latest step's groups

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._last = 0  # nothing starts any more
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    @property
    def state(self) -> SourceState:
        """Return which groups have been taken, and which others have been started."""
        return SourceState(sorted(self._taken), sorted(self._begun.items()))

    async def take(self, step: int) -> list[Episode]:
        """Return the groups that may wait no longer, and then those that were complete first.

        Raises:
            TooManyFaults: most of a group's episodes failed with environment errors.
        """
        self._version = step - 1
        self._start()
        while not (chosen := self._chosen()):
            under_way = [task for n, task in self._running.items() if n not in self._complete]
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        self._complete = [n for n in self._complete if n not in chosen]
        self._taken.update(chosen)
        for n in chosen:
            del self._begun[n]
        episodes = [self._running.pop(n).result() for n in sorted(chosen)]
        return [episode for group in episodes for episode in group]

    def _chosen(self) -> list[int]:
        """Return the groups to train on; none while some of them are not complete.

        A group started at version b is trained on at version b + staleness at the latest. Later
        steps can still train on u tasks groups until u versions from now: groups that must be
        gone by then beyond that number are chosen now. There are never too many of them, since at
        version v no more than (staleness + v + 1) tasks groups have been started.
        """
        for n in self._complete:
            self._running[n].result()  # raises its error, at once
        order = [*self._complete, *(n for n in self._running if n not in self._complete)]
        chosen: list[int] = []
        for later in range(self._staleness + 1):
            last = self._version + later - self._staleness
            due = [n for n in order if self._begun[n] <= last]
            beyond = len(due) - later * self._tasks - sum(n in chosen for n in due)
            chosen += [n for n in due if n not in chosen][: max(0, beyond)]
        chosen += [n for n in self._complete if n not in chosen]
        chosen = chosen[: self._tasks]
        ready = len(chosen) == self._tasks and set(chosen) <= set(self._complete)
        return chosen if ready else []

    def _start(self) -> None:
        """Start as many groups as the bounds allow."""
        while self._next < self._last and self._capacity() > 0:
            if self._next not in self._taken:
                self._begin(self._next)
            self._next += 1

    def _capacity(self) -> int:
        running = len(self._running) - len(self._complete)
        return staleness_capacity(
            self._staleness,
            self._version,
            self._tasks,
            accepted=self._next - running,
            running=running,
            max_concurrent=self._together,
        )

    def _begin(self, n: int) -> None:
        earlier, index = divmod(n, self._tasks)
        if self._sampled[0] != earlier + 1:
            self._sampled = (earlier + 1, self._sample_groups(earlier + 1))
        self._begun.setdefault(n, self._version)

        def complete(task: asyncio.Task[list[Episode]]) -> None:
            self._complete.append(n)
            self._start()

        task = asyncio.ensure_future(self._roll_out(earlier + 1, self._sampled[1][index]))
        self._running[n] = task
        task.add_done_callback(complete)
