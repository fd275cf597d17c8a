"""Replay: the world of a recorded episode, put back into the state before any of its turns.

Exact where the world declares snapshots or is deterministic: the recorded actions are done
again in a fresh world, and everything that comes back is compared with the record. The world
lives in this process, as in `palaestra play`: nothing protects it from a world that crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import EnvironmentFault, InputError, PalaestraError

T = TypeVar("T")

Worlds = Callable[[str], Environment]
"""Environment id to a fresh world, such as `registry.make`."""


class Replay:
    """One episode's world, at any of its turns; close it, or use `with`."""

    def __init__(self, episode: Episode, world: Environment) -> None:
        """`world` is a fresh one of the episode's environment; use `Replay.of` to make it."""
        self.episode, self.world = episode, world
        self.actions = 0  # done so far, of every kind
        self._branches = Capability.SNAPSHOT in world.capabilities
        self._states: list[bytes] = []  # before each turn, where the world branches

    @classmethod
    def of(cls, episode: Episode, worlds: Worlds) -> Replay:
        """The episode's world, ready to be put anywhere.

        Raises:
            InputError: the world neither branches nor repeats itself, or the episode never began.
        """
        world = worlds(episode.task.environment)
        if not (world.deterministic or Capability.SNAPSHOT in world.capabilities):
            world.close()
            raise InputError(
                f"'{episode.task.environment}' is not deterministic and declares no snapshots, so "
                "its episodes cannot be replayed; use a method that only reads the record."
            )
        if episode.observation is None:
            world.close()
            raise InputError(f"{episode.key} has no first observation, so nothing can be replayed.")
        return cls(episode, world)

    def at(self, turn: int) -> Environment:
        """The world in the state before that turn; after the last one with `turn` = all of them.

        Raises:
            InputError: the world goes another way than the record, or there is no such turn.
            EnvironmentFault: the world broke.
        """
        if not 0 <= turn <= len(self.episode.steps):
            raise InputError(
                f"{self.episode.key} has {len(self.episode.steps)} turns, and no state {turn}."
            )
        if turn < len(self._states):
            self.guarded(lambda: self.world.restore(self._states[turn]))
            return self.world
        begin = 0
        if self._states:
            begin = len(self._states) - 1
            self.guarded(lambda: self.world.restore(self._states[begin]))
        else:
            self._reset()
        for index in range(begin, turn):
            self._repeat(index)
            self._keep(index + 1)
        return self.world

    def act(self, action: Action) -> Transition:
        """Do something in the present state, which may lead away from the record."""
        self.actions += 1
        return self.guarded(lambda: self.world.step(action))

    def guarded(self, deed: Callable[[], T]) -> T:
        """What the world returns; raises EnvironmentFault where it breaks."""
        try:
            return deed()
        except PalaestraError:
            raise
        except Exception as error:
            raise EnvironmentFault("replay", f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Free the world."""
        self.world.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reset(self) -> None:
        seen = self.guarded(lambda: self.world.reset(self.episode.task))
        if seen != self.episode.observation:
            raise self._differs("The first observation", seen, self.episode.observation)
        self._keep(0)

    def _repeat(self, index: int) -> None:
        step = self.episode.steps[index]
        then = step.transition
        now = self.act(step.action)
        if (now.observation, now.terminated, now.success) != (
            then.observation,
            then.terminated,
            then.success,
        ):
            raise self._differs(f"Turn {index + 1}", now.observation, then.observation)

    def _keep(self, turn: int) -> None:
        if self._branches and turn == len(self._states):
            self._states.append(self.guarded(self.world.snapshot))

    def _differs(self, what: str, now: Observation, then: Observation | None) -> InputError:
        return InputError(
            f"{what} of {self.episode.key} is {now.text[:80]!r} now and was "
            f"{(then.text if then else '')[:80]!r}, so the episode cannot be replayed; "
            "use the versions that recorded it."
        )
