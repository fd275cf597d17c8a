"""Rollouts: many sessions lived at once, each one recorded, none able to harm another.

The same code evaluates, demonstrates and trains. What the store already holds is
not lived again: finished episodes are returned as they are, interrupted ones go on
after their last recorded event. No session waits for another: not for its turn, not
for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget, Usage
from palaestra.core.environment import World
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, InputError
from palaestra.core.journal import Event, Journal, ReplayMismatch
from palaestra.core.model import Model, Sampling
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.session import Session
from palaestra.rollout.groups import FAULTY_SHARE, Faults, Group, Job, grouped

__all__ = ["EpisodeStore", "Job", "Rollout"]

ENOUGH = "its group has as many results as are needed"


class EpisodeStore(Journal, Protocol):
    """What rollouts need of a store."""

    def past(self, key: Key) -> list[Event]: ...
    def forget(self, key: Key) -> None: ...
    def episode(self, key: Key) -> Episode | None: ...

    def finish(self, episode: Episode) -> Awaitable[None] | None:
        """Store an episode; returns what to wait for until it is stored, None: it is."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How episodes are lived; `run` and `groups` live them."""

    agent: Agent
    worlds: Callable[[str], Awaitable[World]]  # environment id to a world of its own
    models: Mapping[str, Model]  # role to model
    budget: Budget = Budget()
    sampling: Sampling = Sampling()
    seed: int = 0
    concurrency: int = 64
    store: EpisodeStore | None = None
    finished: Callable[[Episode], None] = field(default=lambda episode: None)
    needed: int | None = None
    """So many valid results of each group are enough: then the rest of it is cancelled.

    None lives all jobs to their ends. Which ones are cancelled depends on how long each
    takes, so a deterministic run needs all of them.
    """
    keep: Callable[[str, World], Awaitable[None]] | None = None
    """Takes over the worlds that are no longer needed and in order; None closes them."""

    async def run(self, jobs: Sequence[Job]) -> list[Episode]:
        """Live all jobs; returns their episodes in the order of the jobs.

        Raises:
            InputError: two jobs have the same key.
            TooManyFaults: more than half of the episodes broke through no fault of the agent.
        """
        lived: dict[Key, Episode] = {}
        async for episodes in self.groups(jobs):
            lived.update((episode.key, episode) for episode in episodes)
        return [lived[job.key] for job in jobs]

    async def groups(self, jobs: Sequence[Job]) -> AsyncGenerator[list[Episode], None]:
        """Live all jobs; gives each group (of one phase and group) once all of it has ended.

        Groups come in the order in which they are complete, their episodes in the order of
        the jobs; the others live on meanwhile. Closing the iterator ends them (use
        `contextlib.aclosing` to leave early). Raises like `run`, after the last group.
        """
        lives = _Lives(self, jobs)
        await lives.take_up(jobs)
        count = min(self.concurrency, lives.left)
        runners = [asyncio.create_task(lives.live_jobs()) for _ in range(count)]
        for runner in runners:
            runner.add_done_callback(lives.ready.put_nowait)
        try:
            while count or not lives.ready.empty():
                item = await lives.ready.get()
                if isinstance(item, Group):
                    yield item.episodes()
                else:
                    item.result()  # raises what ended the runner before its time
                    count -= 1
            lives.faults.check()
        finally:
            for runner in runners:
                runner.cancel()
            await asyncio.gather(*runners, return_exceptions=True)


class _Lives:
    """Jobs being lived: the queue, the groups under way, and what is ready."""

    def __init__(self, rollout: Rollout, jobs: Sequence[Job]) -> None:
        if len({job.key for job in jobs}) < len(jobs):
            raise InputError("Two jobs have the same key; give each its own group or member.")
        self.rollout = rollout
        self.left = len(jobs)  # without an outcome
        self.faults = Faults()
        self.ready: asyncio.Queue[Group | asyncio.Task[None]] = asyncio.Queue()
        lines = grouped(jobs).values() if rollout.agent.in_order else [[job] for job in jobs]
        self._queue = iter(lines)  # a runner lives the jobs of a line one after the other
        self._waiting = grouped(jobs)  # of which nothing has begun
        self._groups: dict[tuple[str, int], Group] = {}  # under way

    async def take_up(self, jobs: Sequence[Job]) -> None:
        """Begin with what the store holds.

        What infrastructure broke is lived again. What environments broke is a result, unless
        there is so much of it that it stopped the run. What was cancelled stays so where its
        group has enough results.
        """
        store = self.rollout.store
        if store is None:
            return
        found = [episode for job in jobs if (episode := store.episode(job.key)) is not None]
        cancelled = [episode for episode in found if episode.outcome.was_cancelled]
        broken = sum(not episode.outcome.scored for episode in found) - len(cancelled)
        again = {Owner.INFRASTRUCTURE}
        if broken > FAULTY_SHARE * len(jobs):
            again.add(Owner.ENVIRONMENT)
        for episode in found:
            if episode.outcome.owner not in again:
                self._count(episode)
        for episode in cancelled:
            group = self._group(episode.key)
            if group is not None and group.enough:
                self._count(episode)
        for group in list(self._groups.values()):
            await self._settle(group)

    async def live_jobs(self) -> None:
        """Live jobs one after the other in one world of a kind, replaced when it breaks."""
        worlds: dict[str, World] = {}
        async with contextlib.AsyncExitStack() as held:
            held.push_async_callback(_close, worlds)
            for model in self.rollout.models.values():
                held.enter_context(model.participant())
            for job in chain.from_iterable(self._queue):
                group = self._group(job.key)
                if group is None or job.key in group.begun:
                    continue
                group.begun.add(job.key)
                episode = await self._live(job, group, worlds)
                if episode.outcome.owner is Owner.ENVIRONMENT:
                    broken = worlds.pop(job.task.environment, None)  # the next job gets a fresh one
                    if broken is not None:
                        held.push_async_callback(broken.close)
                await self._end(episode)
            if self.rollout.keep is not None:
                while worlds:
                    await self.rollout.keep(*worlds.popitem())

    async def _live(
        self,
        job: Job,
        group: Group,
        worlds: dict[str, World],
    ) -> Episode:
        """The episode of one job, whatever happens; it ends early if its group has enough."""
        kind = job.task.environment
        runner = asyncio.current_task()
        assert runner is not None
        group.living[job.key] = runner
        session: Session | None = None
        try:
            if kind not in worlds:
                worlds[kind] = await self.rollout.worlds(kind)
            store = self.rollout.store
            session = self._session(job, worlds[kind], store.past(job.key) if store else [])
            try:
                episode = await session.live()
            except ReplayMismatch:
                # the program or the world has changed since: this episode starts over
                assert store is not None
                store.forget(job.key)
                session = self._session(job, worlds[kind], [])
                episode = await session.live()
        except EnvironmentFault as fault:  # the world could not even be made
            outcome = Outcome.error(fault.kind, Owner.ENVIRONMENT, fault.detail)
            episode = self._unlived(job, outcome)
        except InfrastructureFault as fault:
            outcome = Outcome.error(fault.kind, Owner.INFRASTRUCTURE, fault.detail)
            episode = self._unlived(job, outcome)
        except asyncio.CancelledError:
            if job.key not in group.stopped or runner.cancelling() > 1:
                raise  # it is the runner that is to end
            if session is None:
                episode = self._unlived(job, Outcome.cancelled(ENOUGH))
            else:
                session.outcome = session.outcome or Outcome.cancelled(ENOUGH)
                episode = session.episode()
        finally:
            del group.living[job.key]
        if job.key in group.stopped:
            runner.uncancel()  # it goes on with the next job
        return episode

    async def _end(self, episode: Episode) -> None:
        """Store an episode, and see what its end means for its group."""
        store = self.rollout.store
        saved = None if store is None else store.finish(episode)
        if saved is not None:
            await saved
        group = self._count(episode)
        self.rollout.finished(episode)
        await self._settle(group)

    async def _settle(self, group: Group) -> None:
        """Cancel the rest of a group that has enough; hand out one that is complete."""
        if group.enough:
            for job in group.stop():
                await self._end(self._unlived(job, Outcome.cancelled(ENOUGH)))
        first = group.jobs[0].key
        if group.complete and self._groups.pop((first.phase, first.group), None) is not None:
            self.ready.put_nowait(group)

    def _count(self, episode: Episode) -> Group:
        group = self._group(episode.key)
        assert group is not None  # it is not complete without this episode
        group.begun.add(episode.key)
        group.ended[episode.key] = episode
        self.faults.count(episode.outcome)
        self.rollout.agent.witness(episode)
        self.left -= 1
        return group

    def _group(self, key: Key) -> Group | None:
        """The group of a job; None once it is complete."""
        name = (key.phase, key.group)
        if name in self._waiting:
            self._groups[name] = Group(self._waiting.pop(name), self.rollout.needed)
        return self._groups.get(name)

    def _unlived(self, job: Job, outcome: Outcome) -> Episode:
        name = self.rollout.agent.name
        return Episode(job.key, job.task, name, None, (), (), outcome, Usage())

    def _session(self, job: Job, world: World, past: Sequence[Event]) -> Session:
        rollout = self.rollout
        return Session(
            job.key,
            job.task,
            world,
            rollout.agent,
            {role: model.for_world(world) for role, model in rollout.models.items()},
            budget=rollout.budget,
            sampling=rollout.sampling,
            seed=rollout.seed,
            journal=rollout.store,
            past=past,
        )


async def _close(worlds: Mapping[str, World]) -> None:
    for world in worlds.values():
        await world.close()
