"""Where a step's rollouts come from: lived ahead in turn, or all the time while others are learned.

Groups of rollouts are numbered in the order of their start, `tasks` of them to a step. `Ahead`
lives the groups of step s + k before step s is learned: the data flow of an asynchronous run,
without its chance. `Flow` is asynchronous training (AReaL; Fu et al. 2025): groups are lived
while the learner works, started as soon as the staleness bound allows (`staleness_capacity`),
and trained on as soon as they are complete, but none more than `staleness` versions after the
one it was started with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Self

from palaestra.core.episode import Episode
from palaestra.learning.staleness import staleness_capacity
from palaestra.rollout.runner import Job

Draw = Callable[[int], list[list[Job]]]
"""The groups of a step (1-based), from what was known `staleness` steps earlier."""

Live = Callable[[int, Sequence[Job]], Awaitable[list[Episode]]]
"""Makes the episodes of jobs of a step."""


@dataclass(frozen=True, slots=True)
class FlowState:
    """What a resumed flow needs to know; plain lists, so that it can be written down."""

    taken: Sequence[int] = ()  # numbers of the groups that were learned from
    begun: Sequence[tuple[int, int]] = ()  # of the others that were begun: (number, version)


class Ahead:
    """Lives the rollouts of whole steps, `staleness` steps ahead."""

    def __init__(self, draw: Draw, live: Live, staleness: int, steps: int) -> None:
        self._draw, self._live = draw, live
        self._staleness, self._steps = staleness, steps
        self._ready: dict[int, list[Episode]] = {}
        self.state = FlowState()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ready.clear()

    async def take(self, step: int) -> list[Episode]:
        """The rollouts to learn from at a step; steps are asked for in order."""
        for ahead in range(step, min(step + self._staleness, self._steps) + 1):
            if ahead not in self._ready:
                jobs = [job for group in self._draw(ahead) for job in group]
                self._ready[ahead] = await self._live(ahead, jobs)
        return self._ready.pop(step)


class Flow:
    """Lives groups all the time, within a bound on their staleness.

    An asynchronous context manager: leaving it cancels the groups under way; what they have
    recorded stays.
    """

    def __init__(
        self,
        draw: Draw,
        live: Live,
        *,
        staleness: int,
        tasks: int,
        steps: int,
        together: int,
        version: int = 0,
        state: FlowState | None = None,
    ) -> None:
        """Start where an earlier flow stopped, or at the beginning.

        Args:
            draw: the groups of a step.
            live: makes a group's episodes.
            staleness: most versions between a group's start and its training, at least 1.
            tasks: groups per step.
            steps: no group of a later step is started.
            together: most groups under way at once.
            version: steps learned so far.
            state: of the flow that those were taken from.
        """
        self._draw, self._live = draw, live
        self._staleness, self._tasks, self._together = staleness, tasks, together
        self._last = steps * tasks
        self._version = version
        earlier = state or FlowState()
        self._taken = set(earlier.taken)
        self._next = 0
        self._begun = dict(earlier.begun)  # version at the start of those that are not taken
        self._running: dict[int, asyncio.Task[list[Episode]]] = {}  # complete ones included
        self._complete: list[int] = []  # of them, in the order of their completion
        self._drawn: tuple[int, list[list[Job]]] = (0, [])  # the latest step's groups

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._last = 0  # nothing starts any more
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    @property
    def state(self) -> FlowState:
        """What has been taken, and what has been begun besides."""
        return FlowState(sorted(self._taken), sorted(self._begun.items()))

    async def take(self, step: int) -> list[Episode]:
        """The groups that may wait no longer, and then those that were complete first.

        Raises:
            TooManyFaults: most of a group's episodes broke through no fault of the agent.
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
        """The groups to train on; none while some of them are not complete.

        A group begun at version b is trained on at version b + staleness at the latest. Later
        steps can still train on u tasks groups until u versions from now: what must be gone by
        then beyond that number is chosen now. There are never too many of them, since at
        version v no more than (staleness + v + 1) tasks groups have been begun.
        """
        for n in self._complete:
            self._running[n].result()  # raises what went wrong, at once
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
        """Begin as many groups as the bounds allow."""
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
        earlier, place = divmod(n, self._tasks)
        if self._drawn[0] != earlier + 1:
            self._drawn = (earlier + 1, self._draw(earlier + 1))
        self._begun.setdefault(n, self._version)

        def complete(task: asyncio.Task[list[Episode]]) -> None:
            self._complete.append(n)
            self._start()

        task = asyncio.ensure_future(self._live(earlier + 1, self._drawn[1][place]))
        self._running[n] = task
        task.add_done_callback(complete)
