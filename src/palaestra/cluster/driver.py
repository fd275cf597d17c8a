"""The driver's side of the workers: it starts them, leases sessions to them, and records.

The driver learns, has the models and is the only writer of the run's folder. `Workers.session`
stands in for a session of this process (see `Rollout.elsewhere`): the rollout decides which
sessions run when, exactly as it does without a cluster, and a deterministic run has the same
batches and so the same weights.

When a worker is lost, each of its sessions begins again on another one from the events that were
recorded. A reply that the lost worker was waiting for, or had not recorded, is kept here and given
again to the same prompt: no model is asked twice, and no batch changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from palaestra.cluster.leases import Lease, Leases
from palaestra.cluster.placement import WORKER_BYTES, Kind
from palaestra.cluster.session_worker import SCENES
from palaestra.cluster.supervisor import Launcher, Peer, Supervisor
from palaestra.cluster.worker_messages import (
    Answer,
    Ask,
    Begin,
    Ended,
    Policy,
    Scene,
    Stop,
    Wrote,
    read,
)
from palaestra.core.agent import Agent
from palaestra.core.budget import Usage
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Event, Key, Step
from palaestra.core.errors import ClusterFailed, InputError
from palaestra.core.graph import Call as ModelCall
from palaestra.core.model import Generation, Prompt
from palaestra.core.model_calls import ask
from palaestra.core.outcome import Outcome
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job, Rollout

CALL_SECONDS = 60.0  # of one call of an environment, unless a recipe says otherwise
MODULE = "palaestra.cluster.session_worker"
LEAVING = (ExpertModel, RandomModel)  # models that reply from the environment, so they go with it


def worker_kind(least: int = 1, most: int = 8, cpus: float = 1.0) -> Kind:
    """Return the kind of the workers; see `placement.Kind`."""
    note = f"{WORKER_BYTES / 1e9:.1f} GB each without environments"
    return Kind("worker", "cluster.workers", MODULE, least, most, cpus, note=note)


class Workers(Supervisor):
    """The workers of a run; an asynchronous context manager."""

    def __init__(
        self,
        launcher: Launcher,
        say: Callable[[str], None],
        kind: Kind,
        *,
        processes: int,
        timeout: float = CALL_SECONDS,
    ) -> None:
        """Describe the workers; `async with` starts them.

        Args:
            launcher: starts their processes.
            say: shows a message.
            kind: of them; see `worker_kind`.
            processes: of each worker, that host its environments; 0: the worker itself.
            timeout: of one call of an environment in such a process, in seconds.
        """
        super().__init__(launcher, say, kind)
        self.leases: Leases[Key] = Leases()
        self.processes, self.timeout = processes, timeout
        self._sessions: dict[Lease, RemoteSession] = {}
        self._scenes: dict[int, list[str]] = {}  # that each worker keeps, as `SCENES` says
        self._scene: tuple[Rollout, str, bytes] | None = None  # the latest one

    # ── sessions ─────────────────────────────────────────────────────────────

    def session(self, rollout: Rollout, job: Job, past: Sequence[Event]) -> RemoteSession:
        """Return a session of a rollout that runs on a worker; see `Rollout.elsewhere`.

        Raises:
            InputError: the agent learns from one episode for the next, or cannot be sent.
        """
        check_agent(rollout.agent)
        if self._scene is None or self._scene[0] is not rollout:
            pickled = self._pickled(rollout)
            self._scene = rollout, hashlib.blake2b(pickled).hexdigest(), pickled
        return RemoteSession(self, rollout, job, past, *self._scene[1:])

    def _pickled(self, rollout: Rollout) -> bytes:
        models = {
            role: model if isinstance(model, LEAVING) else Policy.of(model)
            for role, model in rollout.models.items()
        }
        scene = Scene(
            rollout.agent,
            models,
            rollout.budget,
            rollout.sampling,
            rollout.seed,
            self.processes,
            self.timeout,
        )
        try:
            return pickle.dumps(scene, protocol=5)
        except Exception as error:  # whatever the agent's class holds
            raise InputError(
                f"The agent '{rollout.agent.name}' cannot be sent to workers: {error}; keep what "
                "cannot be pickled out of its attributes, or leave --on out."
            ) from error

    async def place(self, session: RemoteSession) -> Lease:
        """Lease a session to the worker with the fewest, as soon as there is one, and begin it.

        Raises:
            ClusterFailed: there will be none.
        """
        await self.until(lambda: self.connected)
        birth = min(self.connected, key=lambda one: (self.leases.load(one), one))
        worker, lease = self.connected[birth], self.leases.grant(session.key, birth)
        self._sessions[lease] = session
        scenes = self._scenes.get(birth, [])
        known = session.scene in scenes
        if not known:
            self._scenes[birth] = [*scenes, session.scene][-SCENES:]
        pickled = None if known else session.pickled
        worker.send(Begin(lease, session.scene, pickled, session.job, tuple(session.events)))
        return lease

    def stop(self, lease: Lease) -> None:
        """Stop a session, wherever it is."""
        if lease.birth in self.connected:
            self.connected[lease.birth].send(Stop(lease))

    def release(self, lease: Lease) -> None:
        """End the lease of a session; nothing more of it counts."""
        self.leases.end(lease)
        self._sessions.pop(lease, None)

    # ── what workers send ────────────────────────────────────────────────────

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        while (message := await read(reader)) is not None:
            lease: Lease = message.lease
            if not self.leases.admit(lease):
                continue
            session = self._sessions[lease]
            match message:
                case Wrote(_, event, observation):
                    session.write(event, observation)
                case Ask():
                    self.spawn(self._answer(peer, session, message))
                case Ended(_, result):
                    session.end(result)

    async def _answer(self, worker: Peer, session: RemoteSession, asked: Ask) -> None:
        try:
            reply: Generation | Exception = await session.reply(asked.role, asked.prompt)
        except Exception as error:
            reply = error
        worker.send(Answer(asked.number, reply))

    def lost(self, birth: int) -> str:
        lost = [lease for lease in self._sessions if lease.birth == birth]
        self.leases.end_all(birth)
        self._scenes.pop(birth, None)
        for lease in lost:
            self._sessions.pop(lease).move()
        return f"its {len(lost)} sessions go on elsewhere"

    def failed(self, failure: ClusterFailed) -> None:
        for session in [*self._sessions.values()]:
            session.end(failure)


class RemoteSession:
    """A session that runs on a worker, on as many of them as it takes."""

    def __init__(
        self,
        workers: Workers,
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


def check_agent(agent: Agent) -> None:
    """Raise InputError if the agent's episodes have to run in one process."""
    if agent.in_order:
        raise InputError(
            f"The agent '{agent.name}' remembers earlier episodes, which is not built for sessions "
            "on other machines; leave --on out, or use another agent."
        )
