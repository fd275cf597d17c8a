"""A pool of worker processes: hundreds of environments that cannot hurt each other.

A worker makes one call at a time, so whoever crashes it, hangs it or makes it
speak rubbish is known: that world gets the fault, the worker is replaced, and
every other world it hosted is brought back when it is next used, by a reset (or
the snapshot restored last) and a replay of its actions that must show the same
observations. Where somebody else killed the worker, the fault is the infrastructure's.
Making, resetting and bringing back a world that cost a worker is tried once more in a
fresh one, since nothing new was lived. In the same way worlds
move on to another worker when theirs is busy with a slow call; where there is none,
one more is started. A step cancelled by its caller has not happened, as far as the
world's later answers can tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import psutil
from pydantic import TypeAdapter

from palaestra.core.environment import Action, Observation, Signals, Transition, World
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, InputError
from palaestra.core.task import Task
from palaestra.rollout import worlds
from palaestra.rollout.end import End
from palaestra.rollout.host import Host
from palaestra.rollout.line import Slow
from palaestra.rollout.worker import Request, Verb

T = TypeVar("T")

MORE = 16  # workers that a pool may add for worlds whose own worker is busy with a slow call


class WorkerPool:
    """`count` worker processes that host environments; use it with `async with`.

    `timeout` is how long one call of an environment may take, in seconds; `memory` how many
    bytes a worker may take with all that it hosts and starts (half of the machine's by default).
    A call during which it takes more is a fault of its world; one that has grown over many
    calls is replaced.
    """

    def __init__(self, count: int, timeout: float = 60.0, memory: int | None = None) -> None:
        if count < 1:
            raise InputError(f"A worker pool needs at least one worker, not {count}.")
        memory = memory or psutil.virtual_memory().total // 2
        self._hosts = [Host(timeout, memory) for _ in range(count)]
        self._memory = memory
        self._timeout, self._most = timeout, count + MORE
        self._open = True
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> WorkerPool:
        """Start the workers.

        Raises:
            WorkersUnavailable: a worker does not start; the message says why.
        """
        try:
            await asyncio.gather(*(host.turn(host.ready) for host in self._hosts))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def world(self, environment_id: str) -> HostedWorld:
        """A new environment in the least loaded worker.

        Raises:
            InputError: the environment cannot be made (unknown name, missing package …).
            EnvironmentFault: making it raised, crashed or hung.
            InfrastructureFault: somebody else killed the workers in which it was made.
            WorkersUnavailable: a worker does not start; the message says why.
        """
        host = min(self._hosts, key=lambda host: host.load)
        world = HostedWorld(environment_id, host, next(self._numbers), self._elsewhere)
        try:
            await world.open()
        except BaseException:
            world.discard()
            raise
        return world

    async def close(self) -> None:
        """End all workers; none is left, not even as a zombie."""
        self._open = False
        await asyncio.gather(*(host.close() for host in self._hosts))

    def _elsewhere(self) -> Host | None:
        """The least loaded worker that is not busy with a slow call; None: there can be none."""
        quick = [host for host in self._hosts if not host.line.slow]
        if not quick and self._open and len(self._hosts) < self._most:
            quick = [Host(self._timeout, self._memory)]
            self._hosts += quick
        return min(quick, key=lambda host: host.load, default=None)

    def max_rss_bytes(self) -> int:
        """Sum of the workers' peak resident memory in bytes, as far as the system tells."""
        return sum(host.peak_bytes() for host in self._hosts)

    @property
    def restarts(self) -> int:
        """How often a worker had to be replaced."""
        return sum(max(0, host.births - 1) for host in self._hosts)


class HostedWorld(World):
    """An environment in a worker process, brought back when its worker is replaced.

    After a fault it may be used again: from where it was before the call that failed,
    or, where that was a reset, with another reset.
    """

    def __init__(
        self, id: str, host: Host, number: int, elsewhere: Callable[[], Host | None]
    ) -> None:
        self._id, self._host, self._number = id, host, number
        self._elsewhere = elsewhere  # asks the pool for another host
        self._birth = 0  # the incarnation of the host's process that holds the environment
        self._task: Task | None = None
        self._first: Observation | None = None
        self._base: _Base | None = None  # the snapshot restored since the reset
        self._past: list[tuple[Action, Transition]] = []  # what the caller has seen since then
        self._applied = 0  # how many actions the hosted environment has been given
        self._slow = False  # whether a call since the last reset was slow
        self._talking = False  # a caller who has left may have left a talk behind
        self._open = True
        host.load += 1

    async def open(self) -> None:
        """Make the environment; raises like `WorkerPool.world`."""
        description = await self._turn(lambda: self._twice(self._make), may_leave=True)
        self.instructions = description.instructions
        self.tools = self._described = description.tools
        self.capabilities = description.capabilities
        self.players = description.players
        self.deterministic = description.deterministic

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self._task, self._base, self._past, self._slow = None, None, [], False
        request = Request(self._number, Verb.RESET, task=task)
        first, signals, tools = await self._call(request, worlds.STARTED)
        self.tools = self._described if tools is None else tools
        self._task, self._first = task, first
        return first, signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        request = Request(self._number, Verb.STEP, action=action)
        transition, signals, tools = await self._call(request, worlds.STEPPED)
        self.tools = self.tools if tools is None else tools
        self._past.append((action, transition))
        return transition, signals

    async def oracle(self) -> list[Action]:
        return await self._call(Request(self._number, Verb.ORACLE), worlds.ACTIONS)

    async def admissible(self) -> list[str]:
        return await self._call(Request(self._number, Verb.ADMISSIBLE), worlds.WORDS)

    async def sample(self, seed: int) -> Action:
        return await self._call(Request(self._number, Verb.SAMPLE, seed=seed), worlds.ACTION)

    async def snapshot(self) -> bytes:
        return await self._call(Request(self._number, Verb.SNAPSHOT), worlds.SAVED)

    async def restore(self, snapshot: bytes) -> Signals:
        request = Request(self._number, Verb.RESTORE, snapshot=snapshot)
        signals, tools = await self._call(request, worlds.RESTORED)
        self.tools = self._described if tools is None else tools
        self._base, self._past, self._applied = _Base(snapshot, signals), [], 0
        return signals

    async def close(self) -> None:
        """Free the environment; never raises, for its episode is over."""
        await asyncio.shield(self.discard())

    def discard(self) -> asyncio.Task[None]:
        """Start to free the environment; the task ends when that is done."""
        if self._open:
            self._open = False
            self._host.load -= 1
        return self._host.later(lambda: self._free(self._host, self._birth))

    async def _call(self, request: Request, shape: TypeAdapter[T]) -> T:
        if not self._open:
            raise EnvironmentFault("step", f"{self._id}: used after it was closed")
        if self._task is None and request.verb is not Verb.RESET:
            raise EnvironmentFault("step", f"{self._id}: used before its first complete reset")
        # A slow world stays where it is: to repeat its past elsewhere would be slow as well.
        mobile = request.verb is Verb.RESET or (self.deterministic and not self._slow)
        return await self._turn(lambda: self._converse(request, shape), may_leave=mobile)

    async def _turn(self, talk: Callable[[], Coroutine[Any, Any, T]], may_leave: bool) -> T:
        """Talk with the worker, or with another one that can begin sooner."""
        while True:
            try:
                return await self._host.turn(talk, may_leave=may_leave and not self._talking)
            except Slow:
                other = self._elsewhere()
                if other is None:
                    may_leave = False
                elif other is not self._host:
                    self._move(other)

    def _move(self, other: Host) -> None:
        """Live in another worker from now on; the first talk there brings the environment back."""
        self._host.load -= 1
        self._host.later(partial(self._free, self._host, self._birth))
        other.load += 1
        self._host, self._birth = other, 0

    # ── with the worker to itself ────────────────────────────────────────────

    async def _converse(self, request: Request, shape: TypeAdapter[T]) -> T:
        """Bring the environment to where the caller last saw it, then ask.

        `_applied` and `_past` differ when the environment is new, or has made a step
        whose caller was cancelled.
        """
        self._talking = True
        try:
            if request.verb is Verb.RESET:
                return await self._twice(lambda: self._reset(request, shape))
            await self._twice(lambda: self._bring_back(request.verb))
            if request.verb is Verb.STEP:
                self._applied += 1
            return await self._exchange(request, shape)
        finally:
            self._talking = False
            self._slow = self._slow or self._host.line.slow

    async def _twice(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do what nothing is lost by, once more in a fresh worker if it cost the first one."""
        try:
            return await attempt()
        except (EnvironmentFault, InfrastructureFault):
            if self._host.lives(self._host.births):
                raise
            return await attempt()

    async def _reset(self, request: Request, shape: TypeAdapter[T]) -> T:
        if await self._host.ready() != self._birth:
            await self._make()
        self._applied = 0
        return await self._exchange(request, shape)

    async def _bring_back(self, verb: Verb) -> None:
        lost = await self._host.ready() != self._birth
        ended = self._host.ends[self._birth - 1] if lost and self._birth else None
        if lost:
            await self._make()
        if verb is Verb.RESTORE:
            self._applied = -1  # until the caller has the answer, who may leave before
        elif self._applied != len(self._past):
            why = "lost with its worker" if lost else "a step was cancelled half-way"
            await self._replay(why, ended)

    async def _make(self) -> worlds.Description:
        birth = await self._host.ready()
        request = Request(self._number, Verb.MAKE, environment=self._id)
        description = await self._exchange(request, worlds.DESCRIPTION)
        self._birth, self._applied = birth, -1
        return description

    async def _replay(self, why: str, ended: End | None) -> None:
        """Reset the environment, or restore it, and repeat its past.

        `ended` is how its worker ended, where that is why.

        Raises:
            EnvironmentFault: the past cannot be repeated, or broke the worker.
            InfrastructureFault: it cannot be repeated, and somebody else killed the worker.
        """
        if not self.deterministic and (self._base is None or self._past):
            if ended is not None and ended.from_outside:
                detail = f"{self._id}: {why} from outside ({ended}); it is not deterministic"
                raise InfrastructureFault("workers", detail)
            raise EnvironmentFault("crash", f"{self._id}: {why}; it is not deterministic")
        if self._base is not None:
            request = Request(self._number, Verb.RESTORE, snapshot=self._base.snapshot)
            signals, _ = await self._exchange(request, worlds.RESTORED)
            same = signals == self._base.signals
        else:
            request = Request(self._number, Verb.RESET, task=self._task)
            first, *_ = await self._exchange(request, worlds.STARTED)
            same = first == self._first
        self._applied = 0
        for action, seen in self._past:
            if not same:
                break
            request = Request(self._number, Verb.STEP, action=action)
            again, *_ = await self._exchange(request, worlds.STEPPED)
            self._applied += 1
            same = _shown(again) == _shown(seen)
        if not same:
            detail = f"{self._id}: {why}; its replay went another way after {self._applied} actions"
            raise EnvironmentFault("crash", detail)

    async def _free(self, host: Host, birth: int) -> None:
        if host.lives(birth):
            with contextlib.suppress(EnvironmentFault, InfrastructureFault):
                request = Request(self._number, Verb.CLOSE)
                await host.exchange(request, worlds.NOTHING, self._id)

    async def _exchange(self, request: Request, shape: TypeAdapter[T]) -> T:
        return await self._host.exchange(request, shape, self._id)


@dataclass(frozen=True, slots=True)
class _Base:
    """A restored snapshot, and what the world showed in that state."""

    snapshot: bytes
    signals: Signals


def _shown(transition: Transition) -> tuple[Observation, float, bool, bool]:
    """What a replay must repeat."""
    return (
        transition.observation,
        transition.reward,
        transition.terminated,
        transition.truncated,
    )
