"""Turn replay: the environment of a recorded episode, restored to the state before any turn.

The replay is exact if the environment declares snapshots or is deterministic: the recorded actions
are repeated in a fresh environment, and every observation is compared with the record. The
environment runs in this process, as in `palaestra play`, which a crash of it would end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import EnvironmentFault, InputError, PalaestraError

T = TypeVar("T")

EnvironmentFactory = Callable[[str], Environment]
"""Environment id to a fresh environment, such as `registry.make`."""


class TurnReplay:
    """One episode's environment, restorable to any of its turns; close it, or use `with`."""

    def __init__(self, episode: Episode, env: Environment) -> None:
        """Take over `env`, a fresh environment of the episode; use `TurnReplay.of` to create it."""
        self.episode, self.env = episode, env
        self.actions = 0  # actions so far, of every kind
        self._has_snapshots = Capability.SNAPSHOT in env.spec.capabilities
        self._states: list[bytes] = []  # before each turn, if the environment has snapshots

    @classmethod
    def of(cls, episode: Episode, make_env: EnvironmentFactory) -> TurnReplay:
        """Create the episode's environment.

        Raises:
            InputError: the environment has no snapshots and is not deterministic, or the episode
                never began.
        """
        env = make_env(episode.task.environment)
        if not (env.spec.deterministic or Capability.SNAPSHOT in env.spec.capabilities):
            env.close()
            raise InputError(
                f"'{episode.task.environment}' is not deterministic and declares no snapshots, so "
                "its episodes cannot be replayed; use a method that only reads the record."
            )
        if episode.observation is None:
            env.close()
            raise InputError(
                f"{episode.key} has no first observation, so it cannot be replayed; "
                "name an episode that began."
            )
        return cls(episode, env)

    def at(self, turn: int) -> Environment:
        """Return the environment in the state before that turn; `turn` = len(steps): the end.

        Raises:
            InputError: the environment differs from the record, or there is no such turn.
            EnvironmentFault: the environment raised an exception.
        """
        if not 0 <= turn <= len(self.episode.steps):
            raise InputError(
                f"{self.episode.key} has no state {turn}; give 0 to {len(self.episode.steps)}."
            )
        if turn < len(self._states):
            self.guarded(lambda: self.env.restore(self._states[turn]))
            return self.env
        begin = 0
        if self._states:
            begin = len(self._states) - 1
            self.guarded(lambda: self.env.restore(self._states[begin]))
        else:
            self._reset()
        for index in range(begin, turn):
            self._repeat(index)
            self._save_state(index + 1)
        return self.env

    def act(self, action: Action) -> Transition:
        """Act in the current state, which may leave the recorded trajectory."""
        self.actions += 1
        return self.guarded(lambda: self.env.step(action))

    def guarded(self, function: Callable[[], T]) -> T:
        """Call `function` of the environment; raise EnvironmentFault if it fails."""
        try:
            return function()
        except PalaestraError:
            raise
        except Exception as error:
            raise EnvironmentFault("replay", f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def __enter__(self) -> TurnReplay:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _reset(self) -> None:
        seen = self.guarded(lambda: self.env.reset(self.episode.task))
        if seen != self.episode.observation:
            raise self._differs("The first observation", seen, self.episode.observation)
        self._save_state(0)

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

    def _save_state(self, turn: int) -> None:
        if self._has_snapshots and turn == len(self._states):
            self._states.append(self.guarded(self.env.snapshot))

    def _differs(self, what: str, now: Observation, then: Observation | None) -> InputError:
        return InputError(
            f"{what} of {self.episode.key} is {now.text[:80]!r} now and was "
            f"{(then.text if then else '')[:80]!r}, so the episode cannot be replayed; "
            "use the versions that recorded it."
        )
