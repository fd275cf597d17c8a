"""The driver's side of the workers: it starts them, leases sessions to them, and records.

The driver learns, has the models and is the only writer of the run's folder. `Workers.session`
stands in for a session of this process (see `Rollout.elsewhere`): the rollout decides which
sessions run when, exactly as it does without a cluster, and a deterministic run has the same
batches and so the same weights.

When a worker is lost, each of its sessions moves to another one (`remote_session.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections.abc import Callable, Sequence

from palaestra.cluster.leases import Lease, Leases
from palaestra.cluster.placement import WORKER_BYTES, Kind
from palaestra.cluster.remote_session import RemoteSession
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
from palaestra.core.episode import Event, Key
from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.model import Generation
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.process_roster import Roster

CALL_SECONDS = 60.0  # of one call of an environment, unless a recipe says otherwise
MODULE = "palaestra.cluster.session_worker"
LEAVING = (ExpertModel, RandomModel)  # models that reply from the environment, so they go with it


def worker_kind(least: int = 1, most: int = 8, cpus: float = 1.0) -> Kind:
    """Return the kind of the workers; see `placement.Kind`."""
    note = f"{WORKER_BYTES / 1e9:.1f} GB each without environments"
    return Kind("worker", "cluster.workers", MODULE, "sessions", least, most, cpus, note=note)


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
        roster: Roster | None = None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the workers; see `Supervisor`.

        Args:
            launcher: starts their processes.
            say: shows a message.
            kind: of them; see `worker_kind`.
            processes: of each worker, that host its environments; 0: the worker itself.
            timeout: of one call of an environment in such a process, in seconds.
            roster: in which it stands who is where.
            note: stores the roster, if it has changed.
        """
        super().__init__(launcher, say, kind, roster=roster, note=note)
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
            rollout.player_budget,
            rollout.sampling,
            rollout.seed,
            self.processes,
            self.timeout,
            rollout.probes,
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
        await self.until(lambda: self.staying)
        birth = min(self.staying, key=lambda one: (self.leases.load(one), one))
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
        self.worked(lease.birth)

    # ── what workers send ────────────────────────────────────────────────────

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        birth = peer.greeting.birth
        while (message := await read(reader)) is not None:
            lease: Lease = message.lease
            if not self.leases.admit(lease):
                self.roster.refused = self.leases.refused
                continue
            session = self._sessions[lease]
            match message:
                case Wrote(_, event, observation):
                    session.write(event, observation)
                case Ask() if birth not in self.staying:  # between two turns
                    peer.send(Stop(lease))
                    self.release(lease)
                    session.move()
                case Ask():
                    self.spawn(self._answer(peer, session, message))
                case Ended(_, result):
                    self.roster.count(self.kind.name, birth)
                    session.end(result)

    async def _answer(self, worker: Peer, session: RemoteSession, asked: Ask) -> None:
        try:
            reply: Generation | Exception = await session.reply(asked.role, asked.prompt)
        except Exception as error:
            reply = error
        worker.send(Answer(asked.number, reply))

    def load(self, birth: int) -> int:
        return self.leases.load(birth)

    def lost(self, birth: int) -> None:
        lost = [lease for lease in self._sessions if lease.birth == birth]
        self.leases.end_all(birth)
        self._scenes.pop(birth, None)
        for lease in lost:
            self._sessions.pop(lease).move()

    def failed(self, failure: PalaestraError) -> None:
        for session in [*self._sessions.values()]:
            session.end(failure)


def check_agent(agent: Agent) -> None:
    """Raise InputError if the agent's episodes have to run in one process."""
    if agent.in_order:
        raise InputError(
            f"The agent '{agent.name}' remembers earlier episodes, which is not built for sessions "
            "on other machines; leave --on out, or use another agent."
        )
