"""A rollout worker: a process that runs the sessions which its driver leases to it.

Agent, environment and session are here; the models and the record are the driver's. Every event is
sent as it happens. A prompt is answered only after the events before it are recorded, so a worker
that dies loses at most the turn under way. A worker needs neither torch nor Ray, and ends with its
driver.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from palaestra.cluster.leases import Lease
from palaestra.cluster.supervised_process import CONNECTING, greeting, send_beats
from palaestra.cluster.worker_messages import (
    Answer,
    Ask,
    Begin,
    Call,
    Ended,
    Policy,
    Scene,
    Stop,
    Wrote,
    dump,
    read,
)
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Event, Journal, Key
from palaestra.core.errors import InfrastructureFault
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.environments.registry import make
from palaestra.rollout.environment_pool import EnvironmentPool
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.store.codec import encode_event

SCENES = 4  # that a worker keeps


def serve(call: Call) -> None:
    """Run sessions until the driver ends the connection, or ends itself.

    This process ends soon after, even if an environment goes on computing.

    Raises:
        OSError: the driver cannot be reached.
    """
    send_beats(call)
    asyncio.run(_Worker(call).run())


class _Worker:
    """The sessions of this process."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._writer: asyncio.StreamWriter
        self._scenes: OrderedDict[str, Scene] = OrderedDict()
        self._sessions: dict[Lease, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Generation]] = {}
        self._numbers = 0
        self._places: dict[tuple[int, float], _Environments] = {}

    async def run(self) -> None:
        call = self._call
        async with asyncio.timeout(CONNECTING):
            reader, self._writer = await asyncio.open_connection(call.host, call.port)
        self._writer.write(greeting(call))
        while (message := await read(reader)) is not None:
            match message:
                case Begin():
                    self._begin(message)
                case Stop(lease) if lease in self._sessions:
                    self._sessions[lease].cancel()
                case Answer(number, reply) if number in self._asked:
                    waiting = self._asked.pop(number)
                    if isinstance(reply, Exception):
                        waiting.set_exception(reply)
                    else:
                        waiting.set_result(reply)

    def send(self, message: object) -> Awaitable[None]:
        """Send a message; return what to await so that no more is kept than the network takes."""
        self._writer.write(dump(message))
        return self._writer.drain()

    async def ask(self, lease: Lease, role: str, prompt: Prompt) -> Generation:
        """Return the reply of the driver's model."""
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._asked[number] = waiting
        plain = replace(prompt, listen=None, messages=tuple(prompt.messages))
        try:
            await self.send(Ask(lease, number, role, plain))
            return await waiting
        finally:
            self._asked.pop(number, None)

    def _begin(self, message: Begin) -> None:
        if message.pickled is not None:
            self._scenes[message.scene] = pickle.loads(message.pickled)
            while len(self._scenes) > SCENES:
                self._scenes.popitem(last=False)
        scene = self._scenes[message.scene]
        task = asyncio.create_task(self._run(message, scene))
        self._sessions[message.lease] = task
        task.add_done_callback(lambda _: self._sessions.pop(message.lease, None))

    async def _run(self, message: Begin, scene: Scene) -> None:
        try:
            episode = await self._session(message, scene)
        except Exception as error:
            try:
                await self.send(Ended(message.lease, error))
            except (TypeError, AttributeError, pickle.PicklingError):
                named = InfrastructureFault("worker", f"{type(error).__name__}: {error}")
                await self.send(Ended(message.lease, named))
        else:
            await self.send(Ended(message.lease, replace(episode, calls=(), steps=())))

    async def _session(self, message: Begin, scene: Scene) -> Episode:
        kind = message.job.task.environment
        key = scene.processes, scene.timeout
        environments = self._places.setdefault(key, _Environments(*key))
        environment = await environments.take(kind)
        broken = False
        try:
            journal = _Sender(self, message.lease)
            session = Session(
                message.job.key,
                message.job.task,
                environment,
                scene.agent,
                {
                    role: self._model(model, message.lease, role).for_environment(environment)
                    for role, model in scene.models.items()
                },
                budget=scene.budget,
                player_budget=scene.player_budget,
                sampling=scene.sampling,
                seed=scene.seed,
                journal=journal,
                past=message.past,
                probes=scene.probes,
            )
            journal.session = session
            episode = await session.run()
            broken = episode.outcome.owner is Owner.ENVIRONMENT
            return episode
        finally:
            await (environment.close() if broken else environments.keep(kind, environment))

    def _model(self, model: Policy | Model, lease: Lease, role: str) -> Model:
        if isinstance(model, Model):
            return model
        return _Elsewhere(model, lambda prompt: self.ask(lease, role, prompt))


class _Elsewhere(Model):
    """A model of the driver's."""

    def __init__(self, policy: Policy, ask: Callable[[Prompt], Awaitable[Generation]]) -> None:
        self.name, self.renderer, self.max_tokens = policy.name, policy.renderer, policy.max_tokens
        self.chooses, self.native_tools = policy.chooses, policy.native_tools
        self.limits_reasoning, self._constrains = policy.limits_reasoning, policy.constrains
        self.scores_answers = policy.scores_answers
        self._ask = ask

    @property
    def constrains(self) -> bool:
        return self._constrains

    async def generate(self, prompt: Prompt) -> Generation:
        return await self._ask(prompt)


class _Sender(Journal):
    """The journal of one session, which sends each event to the driver."""

    session: Session

    def __init__(self, worker: _Worker, lease: Lease) -> None:
        self._worker, self._lease, self._begun = worker, lease, False

    def append(self, key: Key, event: Event) -> Awaitable[None]:
        encode_event(event)  # raises here what it would raise where it is stored
        first = None if self._begun else self.session.observation
        self._begun = True
        return self._worker.send(Wrote(self._lease, event, first))


class _Environments:
    """The environments of a worker, in processes of their own or in this one."""

    def __init__(self, processes: int, timeout: float) -> None:
        self._processes, self._timeout = processes, timeout
        self._pool: asyncio.Task[WorkerPool] | None = None
        self._kept = EnvironmentPool(self._make)
        self.take, self.keep = self._kept.take, self._kept.keep

    async def _make(self, kind: str) -> AsyncEnvironment:
        if not self._processes:
            return LocalEnvironment(make(kind))
        if self._pool is None or (self._pool.done() and self._pool.exception() is not None):
            self._pool = asyncio.create_task(
                WorkerPool(self._processes, self._timeout).__aenter__()
            )
        return await (await asyncio.shield(self._pool)).make(kind)
