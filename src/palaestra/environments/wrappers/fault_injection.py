"""Wrappers that inject faults: latency, transient errors, stale and partial observations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Environment, Observation, Spec, Transition
from palaestra.environments.wrappers.wrapper import Ending, Wrapper, require_one_player

AGAIN = "Something went wrong for a moment, and nothing happened. Try again."


class Latency(Wrapper):
    """A delay before each answer."""

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._seconds = float(value)

    def after_step(self, transition: Transition) -> Transition:
        time.sleep(self._seconds)
        return super().after_step(transition)


class Errors(Ending):
    """Transient errors for a share of the actions."""

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._share = float(value)
        self._failed = False  # the last action

    def after_reset(self, observation: Observation) -> Observation:
        self._failed = False
        return super().after_reset(observation)

    def step(self, action: Action) -> Transition:
        if self.over or not self._happens("error", self._share, self.turn):
            return super().step(action)
        self.turn += 1
        self._failed = True
        return Transition(Observation(AGAIN))

    def after_step(self, transition: Transition) -> Transition:
        self.over = transition.terminated or transition.truncated
        self._failed = False
        return super().after_step(transition)

    def caption(self) -> str:
        return AGAIN if self._failed else super().caption()

    def memory(self) -> list[bool]:  # type: ignore[override]
        return [self.over, self._failed]

    def remember(self, memory: list[bool]) -> None:  # type: ignore[override]
        self.over, self._failed = memory

    def oracle(self) -> Sequence[Action]:
        """Return the plan with each action repeated until no error is injected."""
        plan, turn = [], self.turn
        for action in self.inner.oracle():
            while self._happens("error", self._share, turn):
                plan.append(action)
                turn += 1
            plan.append(action)
            turn += 1
        return plan


class Stale(Wrapper):
    """Stale text for a share of the observations."""

    keyed = True

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._share, self._last = float(value), ""

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"stale={value}")
        return spec

    def after_reset(self, observation: Observation) -> Observation:
        self._last = observation.text
        return observation

    def after_step(self, transition: Transition) -> Transition:
        old, self._last = self._last, transition.observation.text
        transition = super().after_step(transition)
        if not self._happens("stale", self._share, self.turn):
            return transition
        return replace(transition, observation=Observation(old))

    def memory(self) -> str:
        return self._last

    def remember(self, memory: str) -> None:
        self._last = memory


class Partial(Wrapper):
    """Truncated text for a share of the observations."""

    keyed = True

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._share = float(value)

    def after_step(self, transition: Transition) -> Transition:
        transition = super().after_step(transition)
        words = transition.observation.text.split(" ")
        if len(words) < 2 or not self._happens("partial", self._share, self.turn):
            return transition
        half = " ".join(words[: len(words) // 2]).strip() or words[0]
        return replace(transition, observation=Observation(f"{half} …"))
