"""An environment in a worker process, and how it comes back when its worker is replaced.

It is restored by a reset (or the last restored snapshot) and a replay of its actions, which must
give the same observations. Making, resetting and restoring it is retried once in a new worker,
because nothing is lost by it. A step cancelled by its caller has not happened, as far as later
results of the environment show.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Observation,
    Sight,
    Signals,
    Transition,
)
from palaestra.core.errors import EnvironmentFault, InfrastructureFault
from palaestra.core.task import Task
from palaestra.rollout import guarded_environment
from palaestra.rollout.fair_lock import Slow
from palaestra.rollout.wire import Wire
from palaestra.rollout.worker import Request, Verb
from palaestra.rollout.worker_end import End
from palaestra.rollout.worker_handle import Interrupted, WorkerHandle

T = TypeVar("T")

INTERRUPTIONS = 3  # times that a call is made while its worker is lost with others in progress


class WorkerEnvironment(AsyncEnvironment):
    """An environment in a worker process, restored when its worker is replaced.

    After a fault it may be used again: from its state before the call that failed, or, if
    that was a reset, with another reset.
    """

    def __init__(
        self,
        id: str,
        handle: WorkerHandle,
        number: int,
        other_worker: Callable[[], WorkerHandle | None],
        *,
        waits: bool,
    ) -> None:
        self._id, self._handle, self._number = id, handle, number
        self._other_worker = other_worker  # asks the pool for another worker
        self._waits = waits  # whether it shares its worker with others that wait
        self._incarnation = 0  # the incarnation of the worker's process that holds the environment
        self._task: Task | None = None
        self._first: Observation | None = None
        self._base: _Base | None = None  # the snapshot restored since the reset
        self._history: list[tuple[Action, Transition]] = []  # what the caller has seen since then
        self._applied = 0  # the number of actions that the hosted environment has taken
        self._slow = False  # whether a call since the last reset was slow
        self._running: asyncio.Task[Any] | None = None  # a call, perhaps of a cancelled caller
        self._open = True
        handle.load += 1

    async def open(self) -> None:
        """Make the environment; raises like `WorkerPool.make`."""
        description = await self._run(lambda: self._with_retry(self._make), may_leave=True)
        self.instructions = description.instructions
        self.tools = self._described = description.tools
        self.capabilities = description.capabilities
        self.players, self.stakes = description.players, description.stakes
        self.token_time = description.token_time
        self.deterministic = description.deterministic

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self._task, self._base, self._history, self._slow = None, None, [], False
        request = Request(self._number, Verb.RESET, task=task)
        first, signals, tools = await self._call(request, guarded_environment.STARTED)
        self.tools = self._described if tools is None else tools
        self._task, self._first = task, first
        return first, signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        request = Request(self._number, Verb.STEP, action=action)
        transition, signals, tools = await self._call(request, guarded_environment.STEPPED)
        self.tools = self.tools if tools is None else tools
        self._history.append((action, transition))
        return transition, signals

    async def oracle(self) -> list[Action]:
        return await self._call(Request(self._number, Verb.ORACLE), guarded_environment.ACTIONS)

    async def admissible(self) -> list[str]:
        return await self._call(Request(self._number, Verb.ADMISSIBLE), guarded_environment.WORDS)

    async def sample(self, seed: int) -> Action:
        return await self._call(
            Request(self._number, Verb.SAMPLE, seed=seed), guarded_environment.ACTED
        )

    async def look(self) -> Sight:
        looked = await self._call(Request(self._number, Verb.LOOK), guarded_environment.LOOKED)
        return guarded_environment.sight(looked)

    async def answer(self) -> Action:
        return await self._call(Request(self._number, Verb.ANSWER), guarded_environment.ACTED)

    async def snapshot(self) -> bytes:
        return await self._call(Request(self._number, Verb.SNAPSHOT), guarded_environment.SAVED)

    async def restore(self, snapshot: bytes) -> Signals:
        request = Request(self._number, Verb.RESTORE, snapshot=snapshot)
        signals, tools = await self._call(request, guarded_environment.RESTORED)
        self.tools = self._described if tools is None else tools
        self._base, self._history, self._applied = _Base(snapshot, signals), [], 0
        return signals

    async def close(self) -> None:
        """Free the environment; never raises, because its episode is over."""
        await asyncio.shield(self.discard())

    def discard(self) -> asyncio.Task[None]:
        """Start to free the environment; the task ends when that is done."""
        if self._open:
            self._open = False
            self._handle.load -= 1
        return self._handle.later(self._free(self._handle, self._incarnation))

    async def _call(self, request: Request, wire: Wire[T]) -> T:
        if not self._open:
            raise EnvironmentFault("step", f"{self._id}: used after it was closed")
        if self._task is None and request.verb is not Verb.RESET:
            raise EnvironmentFault("step", f"{self._id}: used before its first complete reset")
        # A slow environment does not move: replaying its history would be slow as well.
        mobile = request.verb is Verb.RESET or (self.deterministic and not self._slow)
        return await self._run(lambda: self._restore_and_call(request, wire), may_leave=mobile)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, T]], may_leave: bool) -> T:
        """Run `work` in the worker, after the call of a caller that has left.

        An interrupted call is made again there, alone: then a fault is its own.
        """
        await self._finished()
        shared = self._waits
        for _ in range(INTERRUPTIONS):
            try:
                return await self._queued(work, may_leave, shared)
            except Interrupted:
                shared = may_leave = False
        detail = f"{self._id}: its worker was lost {INTERRUPTIONS} times during its call"
        raise InfrastructureFault("workers", detail)

    async def _queued(
        self, work: Callable[[], Coroutine[Any, Any, T]], may_leave: bool, shared: bool
    ) -> T:
        """Run `work` in the worker, or in another one that is free sooner."""
        while True:
            try:
                return await self._handle.run(work, may_leave=may_leave, shared=shared)
            except Slow:
                other = self._other_worker()
                if other is None:
                    may_leave = False
                elif other is not self._handle:
                    self._move(other)

    async def _finished(self) -> None:
        """Wait until no call is in progress."""
        if self._running is not None:
            await asyncio.wait({self._running})

    def _move(self, other: WorkerHandle) -> None:
        """Move to another worker; the first call there restores the environment."""
        self._handle.load -= 1
        self._handle.later(self._free(self._handle, self._incarnation))
        other.load += 1
        self._handle, self._incarnation = other, 0

    async def _free(self, handle: WorkerHandle, incarnation: int) -> None:
        await self._finished()
        with contextlib.suppress(EnvironmentFault, InfrastructureFault, Interrupted):
            await handle.run(partial(self._close_in, handle, incarnation), shared=self._waits)

    # ── with access to the worker ────────────────────────────────────────────

    async def _restore_and_call(self, request: Request, wire: Wire[T]) -> T:
        """Restore the environment to the state that the caller last saw, then send the request.

        `_applied` and the history differ when the environment is new, or has taken a step
        whose caller was cancelled.
        """
        self._running = asyncio.current_task()
        try:
            if request.verb is Verb.RESET:
                return await self._with_retry(lambda: self._reset(request, wire))
            await self._with_retry(lambda: self._restore_state(request.verb))
            if request.verb is Verb.STEP:
                self._applied += 1
            return await self._exchange(request, wire)
        finally:
            self._running = None
            self._slow = self._slow or self._handle.lock.slow

    async def _with_retry(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `attempt`, and retry it once in a new worker if it broke the first one."""
        try:
            return await attempt()
        except (EnvironmentFault, InfrastructureFault):
            if self._handle.is_running(self._handle.incarnations):
                raise
            return await attempt()

    async def _reset(self, request: Request, wire: Wire[T]) -> T:
        if await self._handle.ready() != self._incarnation:
            await self._make()
        self._applied = 0
        return await self._exchange(request, wire)

    async def _restore_state(self, verb: Verb) -> None:
        lost = await self._handle.ready() != self._incarnation
        ended = self._handle.ends[self._incarnation - 1] if lost and self._incarnation else None
        if lost:
            await self._make()
        if verb is Verb.RESTORE:
            self._applied = -1  # until the caller, which may be cancelled, has the answer
        elif self._applied != len(self._history):
            why = "lost with its worker" if lost else "a step was cancelled half-way"
            await self._replay(why, ended)

    async def _make(self) -> guarded_environment.Description:
        incarnation = await self._handle.ready()
        request = Request(self._number, Verb.MAKE, environment=self._id, waits=self._waits)
        description = await self._exchange(request, guarded_environment.DESCRIPTION)
        self._incarnation, self._applied = incarnation, -1
        return description

    async def _replay(self, why: str, ended: End | None) -> None:
        """Reset the environment, or restore its snapshot, and replay its history.

        `ended` is how its worker ended, if that is the reason.

        Raises:
            EnvironmentFault: the history cannot be replayed, or broke the worker.
            InfrastructureFault: it cannot be replayed, and another process killed the worker.
        """
        if not self.deterministic and (self._base is None or self._history):
            if ended is not None and ended.from_outside:
                detail = f"{self._id}: {why} from outside ({ended}); it is not deterministic"
                raise InfrastructureFault("workers", detail)
            raise EnvironmentFault("crash", f"{self._id}: {why}; it is not deterministic")
        if self._base is not None:
            request = Request(self._number, Verb.RESTORE, snapshot=self._base.snapshot)
            signals, _ = await self._exchange(request, guarded_environment.RESTORED)
            same = signals == self._base.signals
        else:
            request = Request(self._number, Verb.RESET, task=self._task)
            first, *_ = await self._exchange(request, guarded_environment.STARTED)
            same = first == self._first
        self._applied = 0
        for action, seen in self._history:
            if not same:
                break
            request = Request(self._number, Verb.STEP, action=action)
            repeated, *_ = await self._exchange(request, guarded_environment.STEPPED)
            self._applied += 1
            same = _shown(repeated) == _shown(seen)
        if not same:
            detail = f"{self._id}: {why}; its replay went another way after {self._applied} actions"
            raise EnvironmentFault("crash", detail)

    async def _close_in(self, handle: WorkerHandle, incarnation: int) -> None:
        if handle.is_running(incarnation):
            request = Request(self._number, Verb.CLOSE)
            await handle.exchange(request, guarded_environment.NOTHING, self._id, waits=self._waits)

    async def _exchange(self, request: Request, wire: Wire[T]) -> T:
        return await self._handle.exchange(request, wire, self._id, waits=self._waits)


@dataclass(frozen=True, slots=True)
class _Base:
    """A restored snapshot, and the environment's signals in that state."""

    snapshot: bytes
    signals: Signals


def _shown(transition: Transition) -> tuple[Observation, float, bool, bool]:
    """Return the parts of a transition that a replay must reproduce."""
    return (
        transition.observation,
        transition.reward,
        transition.terminated,
        transition.truncated,
    )
