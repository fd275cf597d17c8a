"""A trial: temporary actions in an episode's environment, undone at its end.

Test-time search needs an environment that branches: try an action, look, go back, try another.
Inside `async with session.trial()` the agent acts in the episode's own environment. These actions
are not steps of the episode, so its rewards and credit are unaffected. On leaving, the environment
is back in the state of the episode. Tried actions are counted (`Usage.tried`), and model calls
during a trial are ordinary nodes of the message graph.

An environment branches by its snapshots or, if it has none and is deterministic, by a reset and a
replay of its actions. A snapshot includes the random state, so a trial sees the random events that
the episode would.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from palaestra.core.environment import Action, Capability, Signals, Transition
from palaestra.core.errors import AgentFault, CapabilityMissing, EnvironmentFault
from palaestra.core.message import ToolCall

if TYPE_CHECKING:
    from palaestra.core.session import Session

ActionPath = tuple[tuple[Action, Transition], ...]
"""The actions of a trial, each with its transition."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state that a trial can go back to."""

    path: ActionPath  # from the state of the episode
    signals: Signals
    snapshot: bytes | None  # None where the state is restored by replaying its actions


class Trial:
    """One trial, used as `async with session.trial() as trial`."""

    def __init__(self, session: Session, signals: Signals) -> None:
        """Prepare a trial in a session whose environment now has these signals."""
        self._session, self._environment = session, session.environment
        self._snapshots = Capability.SNAPSHOT in self._environment.capabilities
        self._path: ActionPath = ()
        self._signals = signals
        self._here: Point | None = None  # the present state, if it was saved
        self._home: Point | None = None

    @property
    def signals(self) -> Signals:
        """The signals of the tried state."""
        return self._signals

    @property
    def steps(self) -> int:
        """The number of actions from the state of the episode to the tried state."""
        return len(self._path)

    @property
    def over(self) -> bool:
        """Whether nothing more can be tried from here.

        The last action ended the task, or the path has as many actions as the episode has turns
        left, or the budget for trials is used up.
        """
        if self._path and _ended(self._path[-1][1]):
            return True
        left = self._session.turns_left
        return (left is not None and self.steps >= left) or self._session.tries_left == 0

    async def act(self, action: str | Action | ToolCall) -> Transition:
        """Try an action; it counts in the usage, but is not a step of the episode.

        Raises:
            AgentFault: the task has ended on this path; go back to an earlier point.
            SessionOver: the budget of time or of trials has run out.
        """
        if self._path and _ended(self._path[-1][1]):
            raise AgentFault("trial", "it acts after the end of a tried path; go back to a point")
        self._session.count_tried()
        action = Action.of(action)
        self._here = None
        transition, self._signals = await self._environment.step(action)
        self._path = (*self._path, (action, transition))
        return transition

    async def save(self) -> Point:
        """Save the present state and return it, to go back to within this trial."""
        if self._here is None:
            snapshot = await self._environment.snapshot() if self._snapshots else None
            self._here = Point(self._path, self._signals, snapshot)
        return self._here

    async def back(self, point: Point) -> None:
        """Go back to a state that was saved in this trial.

        Raises:
            EnvironmentFault: the environment did not come back to the same state.
        """
        if self._here is point:
            return
        self._here = None
        if point.snapshot is not None:
            signals = await self._environment.restore(point.snapshot)
        else:
            signals = await self._replay(point.path)
        if signals != point.signals:
            detail = f"back in a state saved in a trial it shows {signals}, not {point.signals}"
            raise EnvironmentFault("branch", detail)
        self._path, self._signals, self._here = point.path, signals, point

    async def _replay(self, path: ActionPath) -> Signals:
        """Reset the environment, then replay the episode's actions and those of the path."""
        observation, signals = await self._environment.reset(self._session.task)
        same = observation == self._session.observation
        done = [(step.action, step.transition) for step in self._session.steps]
        for action, seen in (*done, *path):
            if not same:
                break
            transition, signals = await self._environment.step(action)
            same = transition == seen
        if not same:
            raise EnvironmentFault("branch", "it went another way when its actions were repeated")
        return signals

    async def __aenter__(self) -> Trial:
        if not (self._snapshots or self._environment.deterministic):
            raise CapabilityMissing(
                f"'{self._session.task.environment}' has no snapshots and is not deterministic, so "
                "it allows no trials; use an agent that does not search, or an environment that "
                f"declares '{Capability.SNAPSHOT}' or is deterministic."
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
        """Restore the state of the episode; if that fails, the session does not continue.

        After a fault of the environment, and when the agent is being cancelled, nothing is
        restored: a cancelled episode does not wait for its environment.
        """
        lost = isinstance(error, EnvironmentFault) or not isinstance(error, Exception | None)
        if lost:
            return
        assert self._home is not None
        await self.back(self._home)
        self._session.end_trial()


def _ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated
