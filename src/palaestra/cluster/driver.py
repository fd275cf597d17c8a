"""The driver's side of the workers: it starts them, leases sessions to them, and records.

The driver learns, has the models and is the only writer of the run's folder. `Workers.session`
stands in for a session of this process (see `Rollout.elsewhere`): the rollout decides which
sessions run when, exactly as it does without a cluster, and a deterministic run has the same
batches and so the same weights.

When a worker is lost, each of its sessions moves to another one (`remote_session.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pickle
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from palaestra.cluster.fleet import Fleet
from palaestra.cluster.leases import Lease, Leases
from palaestra.cluster.placement import MACHINE_GONE
from palaestra.cluster.remote_session import RemoteSession
from palaestra.cluster.session_worker import BEAT, SCENES
from palaestra.cluster.worker_messages import (
    SECRET,
    Answer,
    Ask,
    Begin,
    Call,
    Ended,
    Greeting,
    Policy,
    Scene,
    Stop,
    Wrote,
    dump,
    greeted,
    read,
    versions,
)
from palaestra.core.agent import Agent
from palaestra.core.episode import Event, Key
from palaestra.core.errors import ClusterFailed, InputError, PalaestraError
from palaestra.core.model import Generation
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.worker_roster import Roster

CALL_SECONDS = 60.0  # of one call of an environment, unless a recipe says otherwise
LOOK = 2.0  # seconds between looks at the room that the machines have
SCARCE = 60.0  # seconds without enough workers after which that is said
LAST_WORDS = 2.0  # seconds for a process that is gone to say why
GREETING = 10.0  # seconds for a connection to say who it is

LEFT = "it was asked to leave"  # the cause of an end that was wanted
CUT = "its connection ended"  # the cause of a loss before the process is known to have ended
LEAVING = (ExpertModel, RandomModel)  # models that reply from the environment, so they go with it


class Launcher(Protocol):
    """What starts worker processes on machines."""

    host: str
    """The address of this machine, as the others reach it."""

    def room(self) -> int:
        """Return how many workers the machines have room for in all; may block."""

    def leaving(self) -> set[int]:
        """Return the workers whose machines are announced to leave; may block."""

    def start(self, call: Call) -> Awaitable[str]:
        """Start a worker; return what ends with its process, with the reason as text."""

    def kill(self, birth: int) -> None:
        """Kill a worker; may block."""

    def lack(self, least: int) -> str:
        """Return what is missing for `least` workers, as a sentence; may block."""

    def close(self) -> None:
        """Kill all workers that are left; may block."""


@dataclass(eq=False)
class _Worker:
    """A worker that is connected."""

    greeting: Greeting
    writer: asyncio.StreamWriter
    scenes: list[str] = field(default_factory=list)  # that it keeps, as `SCENES` says

    def send(self, message: object) -> None:
        self.writer.write(dump(message))


class Workers:
    """The workers of a run; an asynchronous context manager."""

    def __init__(
        self,
        launcher: Launcher,
        say: Callable[[str], None],
        *,
        least: int,
        most: int,
        processes: int,
        timeout: float = CALL_SECONDS,
        note: Callable[[Roster], None] = lambda roster: None,
    ) -> None:
        """Describe the workers; `async with` starts them.

        Args:
            launcher: starts their processes.
            say: shows a message.
            least: how many must be at work before the run begins.
            most: how many there are where the machines have room.
            processes: of each worker, that host its environments; 0: the worker itself.
            timeout: of one call of an environment in such a process, in seconds.
            note: stores who is where, whenever that changes.
        """
        self.leases: Leases[Key] = Leases()
        self.processes, self.timeout = processes, timeout
        self.failure: ClusterFailed | None = None
        self.connected: dict[int, _Worker] = {}
        self.roster = Roster()
        self._note, self._noted = note, ""
        self._launcher, self._say, self._least = launcher, say, least
        self._fleet = Fleet(most)
        self._secret = secrets.token_bytes(SECRET)
        self._sessions: dict[Lease, RemoteSession] = {}
        self._changed = asyncio.Condition()
        self._ends: dict[int, asyncio.Future[str]] = {}  # of the processes, by birth
        self._tasks: set[asyncio.Future[None]] = set()
        self._scene: tuple[Rollout, str, bytes] | None = None  # the latest one
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        """Start the workers, and wait until enough of them are at work.

        Raises:
            ClusterFailed: they die again and again.
        """
        self._server = await asyncio.start_server(self._accept, self._launcher.host, 0)
        self._spawn(self._start_forever())
        self._spawn(self._beat_forever())
        try:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self.failure or len(self.connected) >= self._least
                )
            if self.failure is not None:
                raise self.failure
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()
        await asyncio.to_thread(self._launcher.close)
        for birth in self.connected:
            self.roster.leave(birth, "the run needs it no more", 0, died=False)
        self._note_roster()
        for worker in self.connected.values():
            worker.writer.close()  # at which it would end by itself as well
        for end in self._ends.values():
            end.cancel()

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
        async with self._changed:
            await self._changed.wait_for(lambda: self.failure or self._free())
        if self.failure is not None:
            raise self.failure
        birth = min(self._free(), key=lambda one: (self.leases.load(one), one))
        worker, lease = self.connected[birth], self.leases.grant(session.key, birth)
        self._sessions[lease] = session
        known = session.scene in worker.scenes
        if not known:
            worker.scenes = [*worker.scenes, session.scene][-SCENES:]
        pickled = None if known else session.pickled
        worker.send(Begin(lease, session.scene, pickled, session.job, tuple(session.events)))
        return lease

    def _free(self) -> set[int]:
        """Return the workers that may be given sessions."""
        return self.connected.keys() - self._fleet.leaving

    def stop(self, lease: Lease) -> None:
        """Stop a session, wherever it is."""
        if lease.birth in self.connected:
            self.connected[lease.birth].send(Stop(lease))

    def release(self, lease: Lease) -> None:
        """End the lease of a session; nothing more of it counts."""
        self.leases.end(lease)
        self._sessions.pop(lease, None)
        if lease.birth in self._fleet.leaving and not self.leases.load(lease.birth):
            self._spawn(self._lose(lease.birth, LEFT))

    # ── connections ──────────────────────────────────────────────────────────

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._connected(reader, writer))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(GREETING):
                greeting = await greeted(reader, self._secret)
            if greeting is None:
                return
            cause = CUT
            if greeting.beats:
                while await reader.read(64):
                    self._fleet.hear(greeting.birth)
            elif different := _different(greeting):
                cause = different
            elif self._fleet.rise(greeting.birth):
                await self._serve(_Worker(greeting, writer), reader)
            await self._lose(greeting.birth, cause)
        except (TimeoutError, OSError):
            return
        finally:
            writer.close()

    async def _serve(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        about = worker.greeting
        self.connected[about.birth] = worker
        self.roster.join(about.birth, about.node, about.pid)
        await self._notify()
        while (message := await read(reader)) is not None:
            lease: Lease = message.lease
            if not self.leases.admit(lease):
                continue
            session = self._sessions[lease]
            match message:
                case Wrote(_, event, observation):
                    session.write(event, observation)
                case Ask() if about.birth in self._fleet.leaving:  # between two turns
                    worker.send(Stop(lease))
                    self.release(lease)
                    session.move()
                case Ask():
                    self._spawn(self._answer(worker, session, message))
                case Ended(_, result):
                    self.roster.count(about.birth)
                    session.end(result)

    async def _answer(self, worker: _Worker, session: RemoteSession, asked: Ask) -> None:
        try:
            reply: Generation | Exception = await session.reply(asked.role, asked.prompt)
        except Exception as error:
            reply = error
        worker.send(Answer(asked.number, reply))

    async def _lose(self, birth: int, cause: str) -> None:
        """Note that a worker is lost; its sessions go on elsewhere."""
        unborn = cause == MACHINE_GONE and birth not in self._fleet.up
        blameless = unborn or birth in self._fleet.leaving
        if not self._fleet.lose(birth, time.monotonic(), blameless=blameless):
            return
        worker = self.connected.pop(birth, None)
        lost = [lease for lease in self._sessions if lease.birth == birth]
        self.leases.end_all(birth)
        for lease in lost:
            self._sessions.pop(lease).move()
        await self._notify()
        if worker is not None:
            worker.writer.close()
        self._spawn(self._bury(birth, worker, cause, len(lost), blameless))

    async def _bury(
        self, birth: int, worker: _Worker | None, cause: str, sessions: int, blameless: bool
    ) -> None:
        """Say why a worker was lost, make sure that it is gone, and see whether to go on."""
        end = self._ends.pop(birth, None)
        if end is not None and cause == CUT:
            with contextlib.suppress(TimeoutError):
                cause = await asyncio.wait_for(asyncio.shield(end), LAST_WORDS)
        where = f" on {worker.greeting.node}" if worker is not None else ""
        name = f"worker {birth}{where}"
        self.roster.leave(birth, cause, sessions, died=not blameless)
        if self._fleet.failed(time.monotonic()):
            await self._fail(
                ClusterFailed(
                    "Five workers died within five minutes, so the run stops. The last one, "
                    f"{name}: {cause}"
                )
            )
        if cause == LEFT:
            self._say(f"{name} has left, as its machine is about to")
        else:
            self._say(f"{name} is lost ({cause}); its {sessions} sessions go on elsewhere")
        await asyncio.to_thread(self._launcher.kill, birth)

    # ── the fleet ────────────────────────────────────────────────────────────

    async def _start_forever(self) -> None:
        try:
            await self._start_and_dismiss()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            await self._fail(ClusterFailed(f"The cluster cannot be asked any more ({reason})."))

    async def _start_and_dismiss(self) -> None:
        scarce: float | None = time.monotonic()
        while self.failure is None:
            room = await asyncio.to_thread(self._launcher.room)
            for birth in await asyncio.to_thread(self._launcher.leaving):
                if self._fleet.dismiss(birth):
                    self._say(f"the machine of worker {birth} is about to leave; sessions move")
                    if not self.leases.load(birth):
                        await self._lose(birth, LEFT)
            now = time.monotonic()
            for birth in self._fleet.due(now, room):
                host, port = self._server.sockets[0].getsockname()[:2]
                call = Call(host, port, self._secret, birth)
                self._ends[birth] = end = asyncio.ensure_future(self._launcher.start(call))
                self._spawn(self._watch(birth, end))
            if len(self._fleet.up) >= self._least:
                scarce = now
            elif scarce is not None and now - scarce >= SCARCE:
                scarce = None  # once
                self._say(await asyncio.to_thread(self._launcher.lack, self._least))
            with contextlib.suppress(TimeoutError):
                async with self._changed, asyncio.timeout(LOOK):
                    await self._changed.wait()
            await asyncio.sleep(max(0.0, self._fleet.resumes - time.monotonic()))

    async def _watch(self, birth: int, end: asyncio.Future[str]) -> None:
        """Note the end of a process that may never have connected."""
        cause = await asyncio.shield(end)
        await self._lose(birth, cause)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            for birth in self._fleet.beat():
                await self._lose(birth, "without a sign of life")
            self._note_roster()

    async def _fail(self, error: ClusterFailed) -> None:
        """End all sessions: none can go on."""
        self.failure = error
        for session in [*self._sessions.values()]:
            session.end(error)
        await self._notify()

    def _note_roster(self) -> None:
        """Store who is where, if it has changed."""
        self.roster.refused = self.leases.refused
        for entry in self.roster.present:
            entry.sessions = self.leases.load(entry.number)
        if str(self.roster) != self._noted:
            self._noted = str(self.roster)
            with contextlib.suppress(PalaestraError):  # what the record itself will meet and raise
                self._note(self.roster)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def check_agent(agent: Agent) -> None:
    """Raise InputError if the agent's episodes have to run in one process."""
    if agent.in_order:
        raise InputError(
            f"The agent '{agent.name}' remembers earlier episodes, which is not built for sessions "
            "on other machines; leave --on out, or use another agent."
        )


def _different(greeting: Greeting) -> str:
    """Return which versions of a worker differ from this process; empty if none does."""
    own = versions()
    found = [
        f"{name} {greeting.versions.get(name, 'none')} instead of {version}"
        for name, version in own.items()
        if greeting.versions.get(name) != version
    ]
    if not found:
        return ""
    return f"{greeting.node} has {', '.join(found)}; install the same versions there"
