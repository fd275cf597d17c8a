"""Rollouts: many concurrent sessions, each recorded and isolated from the others.

The same code evaluates, demonstrates and trains. Episodes in the store do not run
again: finished ones are returned as they are, interrupted ones continue after
their last recorded event. No session waits for another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget, Usage
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Event, Journal, Key
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, InputError, ReplayMismatch
from palaestra.core.model import Model, Sampling
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.session import Session
from palaestra.rollout.advised_session import Advice, AdvisedSession
from palaestra.rollout.environment_pool import AsyncEnvironmentFactory
from palaestra.rollout.garbage import rarely_collected
from palaestra.rollout.groups import FAULTY_SHARE, Faults, Group, Job, grouped

__all__ = ["EpisodeStore", "Job", "Rollout"]

QUORUM_REACHED = "its group has as many results as are needed"


class EpisodeStore(Journal, Protocol):
    """The store of a rollout's episodes."""

    def past(self, key: Key) -> list[Event]: ...
    def forget(self, key: Key) -> None: ...
    def episode(self, key: Key) -> Episode | None: ...

    def finish(self, episode: Episode) -> Awaitable[None] | None:
        """Store an episode; return what to await until it is stored (None: it is)."""


class RunningSession(Protocol):
    """The part of a session that a rollout needs; see `core.session.Session`."""

    outcome: Outcome | None

    async def run(self) -> Episode: ...
    def episode(self) -> Episode: ...


Elsewhere = Callable[["Rollout", Job, Sequence[Event]], RunningSession]
"""Makes a session of a rollout that runs in another process, from the events of an earlier one."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The settings of a rollout; `run` and `groups` run the episodes."""

    agent: Agent
    make_environment: AsyncEnvironmentFactory
    models: Mapping[str, Model]  # role to model
    budget: Budget = Budget()
    player_budget: Budget = Budget()  # of each of several players; beyond it, it forfeits
    sampling: Sampling = Sampling()
    seed: int = 0
    concurrency: int = 64
    store: EpisodeStore | None = None
    finished: Callable[[Episode], None] = field(default=lambda episode: None)
    needed: int | None = None
    """The quorum of valid results of each group, after which the rest of it is cancelled.

    With None, all jobs run to their ends. Which jobs are cancelled depends on how long each
    takes, so a deterministic run needs all of them.
    """
    keep: Callable[[str, AsyncEnvironment], Awaitable[None]] | None = None
    """Takes over working environments that are no longer needed; None closes them."""
    advice: Advice | None = None
    """When the model of the role "advisor" acts in place of the agent's; None: never."""
    elsewhere: Elsewhere | None = None
    """Makes sessions that run in other processes, with environments there; None: all run here."""
    probes: bool = False
    """Whether each call measures the probability of the known answer (see `Session`)."""

    async def run(self, jobs: Sequence[Job]) -> list[Episode]:
        """Run all jobs; return their episodes in the order of the jobs.

        Raises:
            InputError: two jobs have the same key.
            TooManyFaults: more than half of the episodes failed through no fault of the agent.
        """
        found: dict[Key, Episode] = {}
        async for episodes in self.groups(jobs):
            found.update((episode.key, episode) for episode in episodes)
        return [found[job.key] for job in jobs]

    async def groups(self, jobs: Sequence[Job]) -> AsyncGenerator[list[Episode], None]:
        """Run all jobs; yield each group (of one phase and group) once it is complete.

        Groups come in the order in which they complete, their episodes in the order of the
        jobs; the other groups keep running. Closing the iterator ends them (use
        `contextlib.aclosing` to leave early). Raises like `run`, after the last group.
        """
        progress = _Progress(self, jobs)
        await progress.resume(jobs)
        with rarely_collected():
            count = min(self.concurrency, progress.left)
            runners = [asyncio.create_task(progress.run_jobs()) for _ in range(count)]
            for runner in runners:
                runner.add_done_callback(progress.ready.put_nowait)
            try:
                while count or not progress.ready.empty():
                    item = await progress.ready.get()
                    if isinstance(item, Group):
                        yield item.episodes()
                    else:
                        item.result()  # raises the error that ended the runner early
                        count -= 1
                progress.faults.check()
            finally:
                for runner in runners:
                    runner.cancel()
                await asyncio.gather(*runners, return_exceptions=True)


class _Progress:
    """The state of a rollout: the queue of jobs, the groups in progress, and the ready ones."""

    def __init__(self, rollout: Rollout, jobs: Sequence[Job]) -> None:
        if len({job.key for job in jobs}) < len(jobs):
            raise InputError("Two jobs have the same key; give each its own group or member.")
        self.rollout = rollout
        self.left = len(jobs)  # without an outcome
        self.faults = Faults()
        self.ready: asyncio.Queue[Group | asyncio.Task[None]] = asyncio.Queue()
        sequences = grouped(jobs).values() if rollout.agent.in_order else [[job] for job in jobs]
        self._queue = iter(sequences)  # a runner runs the jobs of a sequence one after the other
        self._waiting = grouped(jobs)  # groups that have not started
        self._groups: dict[tuple[str, int], Group] = {}  # in progress

    async def resume(self, jobs: Sequence[Job]) -> None:
        """Take over the episodes in the store.

        Episodes with an infrastructure fault run again. An environment fault is a result,
        unless there were so many that they stopped the run. A cancelled episode stays
        cancelled if its group has a quorum.
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
            if group is not None and group.has_quorum:
                self._count(episode)
        for group in list(self._groups.values()):
            await self._settle(group)

    async def run_jobs(self) -> None:
        """Run jobs one after the other, with one environment per id, replaced when it fails."""
        environments: dict[str, AsyncEnvironment] = {}
        async with contextlib.AsyncExitStack() as held:
            held.push_async_callback(_close, environments)
            hosts = {id(model.host): model.host for model in self.rollout.models.values()}
            for host in hosts.values():  # a session waits for one reply at a time of each
                held.enter_context(host.participant())
            for job in chain.from_iterable(self._queue):
                group = self._group(job.key)
                if group is None or job.key in group.started:
                    continue
                group.started.add(job.key)
                episode = await self._run(job, group, environments)
                if episode.outcome.owner is Owner.ENVIRONMENT:
                    broken = environments.pop(
                        job.task.environment, None
                    )  # the next job gets a new one
                    if broken is not None:
                        held.push_async_callback(broken.close)
                await self._end(episode)
            if self.rollout.keep is not None:
                while environments:
                    await self.rollout.keep(*environments.popitem())

    async def _run(
        self,
        job: Job,
        group: Group,
        environments: dict[str, AsyncEnvironment],
    ) -> Episode:
        """Return the episode of one job, whatever happens; a quorum of its group ends it early."""
        kind = job.task.environment
        runner = asyncio.current_task()
        assert runner is not None
        group.running[job.key] = runner
        session: RunningSession | None = None
        try:
            if kind not in environments and self.rollout.elsewhere is None:
                environments[kind] = await self.rollout.make_environment(kind)
            store = self.rollout.store
            session = self._session(job, environments, store.past(job.key) if store else [])
            try:
                episode = await session.run()
            except ReplayMismatch:
                # the program or the environment has changed since: this episode starts over
                assert store is not None
                store.forget(job.key)
                session = self._session(job, environments, [])
                episode = await session.run()
        except EnvironmentFault as fault:  # the environment could not be made
            outcome = Outcome.error(fault.kind, Owner.ENVIRONMENT, fault.detail)
            episode = self._not_run(job, outcome)
        except InfrastructureFault as fault:
            outcome = Outcome.error(fault.kind, Owner.INFRASTRUCTURE, fault.detail)
            episode = self._not_run(job, outcome)
        except asyncio.CancelledError:
            if job.key not in group.stopped or runner.cancelling() > 1:
                raise  # the runner itself was cancelled
            if session is None:
                episode = self._not_run(job, Outcome.cancelled(QUORUM_REACHED))
            else:
                session.outcome = session.outcome or Outcome.cancelled(QUORUM_REACHED)
                episode = session.episode()
        finally:
            del group.running[job.key]
        if job.key in group.stopped:
            runner.uncancel()  # it continues with the next job
        return episode

    async def _end(self, episode: Episode) -> None:
        """Store an episode, and update its group."""
        store = self.rollout.store
        saved = None if store is None else store.finish(episode)
        if saved is not None:
            await saved
        group = self._count(episode)
        self.rollout.finished(episode)
        await self._settle(group)

    async def _settle(self, group: Group) -> None:
        """Cancel the rest of a group with a quorum; publish a complete group."""
        if group.has_quorum:
            for job in group.stop():
                await self._end(self._not_run(job, Outcome.cancelled(QUORUM_REACHED)))
        first = group.jobs[0].key
        if group.complete and self._groups.pop((first.phase, first.group), None) is not None:
            self.ready.put_nowait(group)

    def _count(self, episode: Episode) -> Group:
        group = self._group(episode.key)
        assert group is not None  # it is not complete without this episode
        group.started.add(episode.key)
        group.ended[episode.key] = episode
        self.faults.count(episode.outcome)
        self.rollout.agent.witness(episode)
        self.left -= 1
        return group

    def _group(self, key: Key) -> Group | None:
        """Return the group of a job; None once it is complete."""
        name = (key.phase, key.group)
        if name in self._waiting:
            self._groups[name] = Group(self._waiting.pop(name), self.rollout.needed)
        return self._groups.get(name)

    def _not_run(self, job: Job, outcome: Outcome) -> Episode:
        name = self.rollout.agent.name
        return Episode(job.key, job.task, name, None, (), (), outcome, Usage())

    def _session(
        self, job: Job, environments: Mapping[str, AsyncEnvironment], past: Sequence[Event]
    ) -> RunningSession:
        rollout = self.rollout
        if rollout.elsewhere is not None:
            return rollout.elsewhere(rollout, job, past)
        environment = environments[job.task.environment]
        models = {role: m.for_environment(environment) for role, m in rollout.models.items()}
        advice = rollout.advice
        kind = Session if advice is None else partial(AdvisedSession, advice=advice)
        return kind(
            job.key,
            job.task,
            environment,
            rollout.agent,
            models,
            budget=rollout.budget,
            player_budget=rollout.player_budget,
            sampling=rollout.sampling,
            seed=rollout.seed,
            journal=rollout.store,
            past=past,
            probes=rollout.probes,
        )


async def _close(environments: Mapping[str, AsyncEnvironment]) -> None:
    for environment in environments.values():
        await environment.close()
