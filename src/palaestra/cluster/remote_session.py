"""A session as its driver sees it: it runs on a worker, on as many of them as it takes.

When its worker is lost, it begins again on another one from the events that were recorded. A reply
that the lost worker was waiting for, or had not recorded, is kept here and given again to the same
prompt: no model is asked twice, and no batch changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Protocol

from palaestra.cluster.leases import Lease
from palaestra.core.budget import Usage
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Event, Step
from palaestra.core.graph import Call as ModelCall
from palaestra.core.model import Generation, Prompt
from palaestra.core.model_calls import ask
from palaestra.core.outcome import Outcome
from palaestra.rollout.runner import Job, Rollout


class Leasing(Protocol):
    """Who leases sessions to workers."""

    async def place(self, session: RemoteSession) -> Lease:
        """Lease a session to a worker, and begin it there."""

    def stop(self, lease: Lease) -> None:
        """Stop a session, wherever it is."""

    def release(self, lease: Lease) -> None:
        """End the lease of a session."""


class RemoteSession:
    """A session that runs on a worker, on as many of them as it takes."""

    def __init__(
        self,
        workers: Leasing,
        rollout: Rollout,
        job: Job,
        past: Sequence[Event],
        scene: str,
        pickled: bytes,
    ) -> None:
        self.key, self.job, self.events = job.key, job, list(past)
        self.scene, self.pickled = scene, pickled
        self.outcome: Outcome | None = None
        self._workers, self._rollout = workers, rollout
        self._observation: Observation | None = None
        self._began = time.monotonic()
        self._result: asyncio.Future[Episode | None]  # None: it has to move
        self._commits: list[Awaitable[None]] = []
        self._replies: dict[int, tuple[str, Prompt, asyncio.Task[Generation]]] = {}  # by seed

    async def run(self) -> Episode:
        """Run the session to its end.

        Raises:
            ReplayMismatch: the record of the interrupted episode differs from its replay.
            ClusterFailed: no worker is left to run it.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._result = loop.create_future()
                lease = await self._workers.place(self)
                try:
                    episode = await self._result
                except asyncio.CancelledError:
                    self._workers.stop(lease)
                    raise
                finally:
                    self._workers.release(lease)
                if episode is not None:
                    await self._committed()
                    calls = tuple(e for e in self.events if isinstance(e, ModelCall))
                    steps = tuple(e for e in self.events if isinstance(e, Step))
                    return replace(episode, calls=calls, steps=steps)
        finally:
            for _, _, asked in self._replies.values():
                asked.cancel()

    def episode(self) -> Episode:
        """Return the record so far, of a session that was stopped."""
        calls = tuple(event for event in self.events if isinstance(event, ModelCall))
        steps = tuple(event for event in self.events if isinstance(event, Step))
        usage = Usage(
            len(steps),
            sum(len(call.prompt) or call.computed_tokens for call in calls),
            sum(call.sampled for call in calls),
            time.monotonic() - self._began,
        )
        name, outcome = self._rollout.agent.name, self.outcome or Outcome.failure()
        return Episode(
            self.key, self.job.task, name, self._observation, calls, steps, outcome, usage
        )

    # ── what its worker brings about ─────────────────────────────────────────

    def write(self, event: Event, observation: Observation | None) -> None:
        """Record an event; an error ends the session."""
        self._observation = observation or self._observation
        self.events.append(event)
        store = self._rollout.store
        if store is None:
            return
        try:
            saved = store.append(self.key, event)
        except Exception as error:
            self.end(error)
            return
        if saved is not None:
            self._commits.append(saved)

    async def reply(self, role: str, prompt: Prompt) -> Generation:
        """Return the reply to a prompt, once all earlier events are recorded."""
        await self._committed()
        known = self._replies.get(prompt.seed)
        if known is None or known[:2] != (role, prompt):
            asked = asyncio.ensure_future(ask(self._rollout.models[role], prompt))
            known = self._replies[prompt.seed] = (role, prompt, asked)
        return await asyncio.shield(known[2])

    def end(self, result: Episode | Exception) -> None:
        """End the session."""
        if self._result.done():
            return
        if isinstance(result, Exception):
            self._result.set_exception(result)
        else:
            self._result.set_result(result)

    def move(self) -> None:
        """Go on with another worker: this one is lost."""
        if not self._result.done():
            self._result.set_result(None)

    async def _committed(self) -> None:
        commits, self._commits = self._commits, []
        for saved in commits:
            await saved
