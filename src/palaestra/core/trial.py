"""A trial: acting in the world of an episode without the episode having acted.

Search at test time needs a world that branches: try an action, look, go back, try another.
Inside `async with session.trial()` the agent acts in the episode's own world; nothing of it
is in the episode's steps, so rewards and credit stay those of what was really done. On
leaving, the world stands where the episode stands. What was tried is counted
(`Usage.tried`), and model calls made meanwhile are nodes of the message graph as always.

A world branches by its snapshots, or, where it has none and is deterministic, by a reset
and the same actions again. A snapshot holds the world's dice, too: where chance decides,
a trial foresees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from palaestra.core.environment import Action, Capability, Signals, Transition
from palaestra.core.errors import AgentFault, CapabilityMissing, EnvironmentFault

if TYPE_CHECKING:
    from palaestra.core.session import Session

Way = tuple[tuple[Action, Transition], ...]
"""Actions of a trial, and what each of them led to."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state that a trial can go back to."""

    way: Way  # from where the episode stands
    signals: Signals
    snapshot: bytes | None  # None where the world is brought back by repeating its actions


class Trial:
    """One trial; `async with session.trial() as trial`."""

    def __init__(self, session: Session, signals: Signals) -> None:
        """Of a session, where its world now gives these signals."""
        self._session, self._world = session, session.world
        self._snapshots = Capability.SNAPSHOT in self._world.capabilities
        self._way: Way = ()
        self._signals = signals
        self._here: Point | None = None  # the point at which the world stands, if it was saved
        self._home: Point | None = None

    @property
    def signals(self) -> Signals:
        """What the world's capabilities say about the tried state."""
        return self._signals

    @property
    def steps(self) -> int:
        """How many actions lead from where the episode stands to the tried state."""
        return len(self._way)

    @property
    def over(self) -> bool:
        """Whether nothing more can be tried from here.

        The way has ended in the world, or would take more turns than the episode has left, or
        no more trials are allowed.
        """
        if self._way and _ended(self._way[-1][1]):
            return True
        left = self._session.turns_left
        return (left is not None and self.steps >= left) or self._session.tries_left == 0

    async def act(self, action: str | Action) -> Transition:
        """Try an action; the episode does not know of it, but its usage does.

        Raises:
            AgentFault: the world has ended on this way; go back to a point before that.
            SessionOver: a budget has run out, of time or of trials.
        """
        if self._way and _ended(self._way[-1][1]):
            raise AgentFault("trial", "it acts after the end of a tried way; go back to a point")
        self._session.count_tried()
        action = Action(action) if isinstance(action, str) else action
        self._here = None
        transition, self._signals = await self._world.step(action)
        self._way = (*self._way, (action, transition))
        return transition

    async def save(self) -> Point:
        """The present state, to go back to within this trial."""
        if self._here is None:
            snapshot = await self._world.snapshot() if self._snapshots else None
            self._here = Point(self._way, self._signals, snapshot)
        return self._here

    async def back(self, point: Point) -> None:
        """Put the world into a state that was saved in this trial.

        Raises:
            EnvironmentFault: the world did not come back to the same state.
        """
        if self._here is point:
            return
        self._here = None
        if point.snapshot is not None:
            signals = await self._world.restore(point.snapshot)
        else:
            signals = await self._repeat(point.way)
        if signals != point.signals:
            detail = f"back in a state saved in a trial it shows {signals}, not {point.signals}"
            raise EnvironmentFault("branch", detail)
        self._way, self._signals, self._here = point.way, signals, point

    async def _repeat(self, way: Way) -> Signals:
        """Reset the world, and do what the episode did and then this."""
        observation, signals = await self._world.reset(self._session.task)
        same = observation == self._session.observation
        done = [(step.action, step.transition) for step in self._session.steps]
        for action, seen in (*done, *way):
            if not same:
                break
            transition, signals = await self._world.step(action)
            same = transition == seen
        if not same:
            raise EnvironmentFault("branch", "it went another way when its actions were repeated")
        return signals

    async def __aenter__(self) -> Trial:
        if not (self._snapshots or self._world.deterministic):
            raise CapabilityMissing(
                f"'{self._session.task.environment}' can neither be saved nor repeated, so nothing "
                "can be tried in it; use an agent that does not search, or a world that declares "
                f"'{Capability.SNAPSHOT}' or is deterministic."
            )
        self._session.begin_trial()
        self._home = await self.save()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the world back; where that cannot be, the session refuses to go on in it.

        It is not tried after a fault of the world, nor when the agent is being cancelled:
        whoever cuts an episode off does not wait for its world.
        """
        lost = isinstance(error, EnvironmentFault) or not isinstance(error, Exception | None)
        if lost:
            return
        assert self._home is not None
        await self.back(self._home)
        self._session.end_trial()


def _ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated
