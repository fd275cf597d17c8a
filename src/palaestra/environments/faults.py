"""Wrappers that disturb: slow answers, passing errors, stale and partial observations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.environments.wrapper import Ending, Wrapper

AGAIN = "Something went wrong for a moment, and nothing happened. Try again."


class Latency(Wrapper):
    """Answers take their time."""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._seconds = float(choice)

    def changed(self, transition: Transition) -> Transition:
        time.sleep(self._seconds)
        return super().changed(transition)


class Errors(Ending):
    """Some actions meet a passing error."""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._share = float(choice)

    def step(self, action: Action) -> Transition:
        if self.over or not self._happens("error", self._share, self.turn):
            return super().step(action)
        self.turn += 1
        return Transition(Observation(AGAIN))

    def changed(self, transition: Transition) -> Transition:
        self.over = transition.terminated or transition.truncated
        return super().changed(transition)

    def oracle(self) -> Sequence[Action]:
        """With each action as often as it takes."""
        way, turn = [], self.turn
        for action in self.inner.oracle():
            while self._happens("error", self._share, turn):
                way.append(action)
                turn += 1
            way.append(action)
            turn += 1
        return way


class Stale(Wrapper):
    """Some observations are old."""

    keyed = True

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._share, self._last = float(choice), ""

    def begun(self, observation: Observation) -> Observation:
        self._last = observation.text
        return observation

    def changed(self, transition: Transition) -> Transition:
        old, self._last = self._last, transition.observation.text
        transition = super().changed(transition)
        if not self._happens("stale", self._share, self.turn):
            return transition
        return replace(transition, observation=Observation(old))

    def memory(self) -> str:
        return self._last

    def remember(self, memory: str) -> None:
        self._last = memory


class Partial(Wrapper):
    """Some observations miss their second half."""

    keyed = True

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._share = float(choice)

    def changed(self, transition: Transition) -> Transition:
        transition = super().changed(transition)
        words = transition.observation.text.split(" ")
        if len(words) < 2 or not self._happens("partial", self._share, self.turn):
            return transition
        half = " ".join(words[: len(words) // 2]).strip() or words[0]
        return replace(transition, observation=Observation(f"{half} …"))
