"""Rollouts: many sessions lived at once, each one recorded, none able to harm another.

The same code evaluates, demonstrates and trains. What the store already holds is
not lived again: finished episodes are returned as they are, interrupted ones go on
after their last recorded event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget, Usage
from palaestra.core.environment import World
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, TooManyFaults
from palaestra.core.model import Model, Sampling
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.session import Event, Journal, ReplayMismatch, Session
from palaestra.core.task import Task

FAULTY_SHARE = 0.5  # more unscored episodes than this stop the run


class EpisodeStore(Journal, Protocol):
    """What rollouts need of a store."""

    def past(self, key: Key) -> list[Event]: ...
    def forget(self, key: Key) -> None: ...
    def finish(self, episode: Episode) -> None: ...
    def episode(self, key: Key) -> Episode | None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to be made."""

    key: Key
    task: Task


@dataclass(frozen=True, slots=True)
class Rollout:
    """How episodes are lived; `run` lives them."""

    agent: Agent
    worlds: Callable[[str], Awaitable[World]]  # environment id to a fresh world
    models: Mapping[str, Model]  # role to model
    budget: Budget = Budget()
    sampling: Sampling = Sampling()
    seed: int = 0
    concurrency: int = 64
    store: EpisodeStore | None = None
    finished: Callable[[Episode], None] = field(default=lambda episode: None)

    async def run(self, jobs: Sequence[Job]) -> list[Episode]:
        """Live all jobs; returns their episodes in the order of the jobs.

        Raises:
            TooManyFaults: more than half of the episodes broke through no fault of the agent.
        """
        done = _kept([self.store.episode(job.key) for job in jobs]) if self.store else {}
        queue = iter([job for job in jobs if job.key not in done])
        runners = min(self.concurrency, len(jobs) - len(done))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(runners):
                    group.create_task(self._runner(queue, done))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one says what to do
        episodes = [done[job.key] for job in jobs]
        _check_faults(episodes)
        return episodes

    async def _runner(self, queue: Iterator[Job], done: dict[Key, Episode]) -> None:
        """Live jobs one after the other in one world of a kind, replaced when it breaks."""
        worlds: dict[str, World] = {}
        async with contextlib.AsyncExitStack() as held:
            for model in self.models.values():
                held.enter_context(model.participant())
            for job in queue:
                kind = job.task.environment
                try:
                    if kind not in worlds:
                        worlds[kind] = await self.worlds(kind)
                        held.push_async_callback(worlds[kind].close)
                    episode = await self._live(job, worlds[kind])
                except EnvironmentFault as fault:  # the world could not even be made
                    episode = self._unlived(job, fault.kind, Owner.ENVIRONMENT, fault.detail)
                except InfrastructureFault as fault:
                    episode = self._unlived(job, fault.kind, Owner.INFRASTRUCTURE, fault.detail)
                if self.store is not None:
                    self.store.finish(episode)
                done[job.key] = episode
                self.finished(episode)
                if episode.outcome.owner is Owner.ENVIRONMENT:
                    worlds.pop(kind, None)  # broken: the next job gets a fresh one

    async def _live(self, job: Job, world: World) -> Episode:
        past = self.store.past(job.key) if self.store is not None else []
        try:
            return await self._session(job, world, past).live()
        except ReplayMismatch:
            # the program or the world has changed since: this episode starts over
            assert self.store is not None
            self.store.forget(job.key)
            return await self._session(job, world, []).live()

    def _unlived(self, job: Job, kind: str, owner: Owner, detail: str) -> Episode:
        outcome = Outcome.error(kind, owner, detail)
        return Episode(job.key, job.task, self.agent.name, None, (), (), outcome, Usage())

    def _session(self, job: Job, world: World, past: Sequence[Event]) -> Session:
        return Session(
            job.key,
            job.task,
            world,
            self.agent,
            {role: model.for_world(world) for role, model in self.models.items()},
            budget=self.budget,
            sampling=self.sampling,
            seed=self.seed,
            journal=self.store,
            past=past,
        )


def _kept(stored: Sequence[Episode | None]) -> dict[Key, Episode]:
    """The stored episodes that stand: what infrastructure broke is lived again.

    What environments broke is a result, unless there is so much of it that it stopped the run.
    """
    found = [episode for episode in stored if episode is not None]
    again = {Owner.INFRASTRUCTURE}
    if _too_many(_broken(found), len(stored)):
        again.add(Owner.ENVIRONMENT)
    return {e.key: e for e in found if e.outcome.owner not in again}


def _broken(episodes: Sequence[Episode]) -> list[Outcome]:
    return [episode.outcome for episode in episodes if not episode.outcome.scored]


def _too_many(broken: Sequence[Outcome], count: int) -> bool:
    return len(broken) > FAULTY_SHARE * count


def _check_faults(episodes: Sequence[Episode]) -> None:
    broken = _broken(episodes)
    if _too_many(broken, len(episodes)):
        last = broken[-1]
        raise TooManyFaults(
            f"{len(broken)} of {len(episodes)} episodes broke through no fault of the agent, the "
            f"last with {last}: {last.detail or 'no detail'}. Nothing was learned from them; mend "
            "the cause and resume the run."
        )
