"""Wrappers that show, limit, reward or take actions in another way."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.tool import ACT, NotACall, Tool, checked, parse_call
from palaestra.environments.faults import Partial, Stale
from palaestra.environments.wrapper import Limited, Wrapper


class Look(Wrapper):
    """Observations have a picture beside their words."""

    def __init__(self, inner: Environment) -> None:
        super().__init__(inner)
        if Capability.PICTURE not in inner.capabilities:
            raise InputError(f"observation=image needs 'picture', which '{inner.name}' has not.")
        while isinstance(inner, Wrapper):
            if isinstance(inner, Stale | Partial):
                raise InputError("observation=image shows what stale and partial hide; leave one.")
            inner = inner.inner

    def begun(self, observation: Observation) -> Observation:
        return self._seen(observation)

    def changed(self, transition: Transition) -> Transition:
        seen = self._seen(transition.observation)
        return replace(super().changed(transition), observation=seen)

    def _seen(self, observation: Observation) -> Observation:
        return replace(observation, image=base64.b64encode(self.inner.picture()).decode())


class Diff(Wrapper):
    """Observations say what has changed."""

    def __init__(self, inner: Environment) -> None:
        super().__init__(inner)
        self._last: list[str] = []

    def begun(self, observation: Observation) -> Observation:
        self._last = _parts(observation.text)
        return observation

    def changed(self, transition: Transition) -> Transition:
        parts = _parts(transition.observation.text)
        new = [f"+ {part}" for part in parts if part not in self._last]
        gone = [f"- {part}" for part in self._last if part not in parts]
        self._last = parts
        text = "\n".join(new + gone) or "nothing new"
        return replace(
            super().changed(transition), observation=replace(transition.observation, text=text)
        )

    def memory(self) -> list[str]:
        return self._last

    def remember(self, memory: list[str]) -> None:
        self._last = memory


class Reward(Wrapper):
    """Rewards of another kind than the world's own."""

    NEEDS: ClassVar[dict[str, Capability | None]] = {
        "sparse": None,
        "progress": Capability.PROGRESS,
        "intrinsic": Capability.STATE_KEY,
    }

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._kind, self._progress = choice, 0.0
        self._seen: dict[str, int] = {}
        needed = self.NEEDS[choice]
        if needed is not None and needed not in inner.capabilities:
            raise InputError(f"reward={choice} needs '{needed}', which '{inner.name}' has not.")

    def begun(self, observation: Observation) -> Observation:
        self._progress = self.inner.progress() if self._kind == "progress" else 0.0
        self._seen = {self.inner.state_key(): 1} if self._kind == "intrinsic" else {}
        return observation

    def changed(self, transition: Transition) -> Transition:
        reward = super().changed(transition).reward
        if self._kind == "sparse":
            reward = float(transition.success)
        elif self._kind == "progress":
            before, self._progress = self._progress, self.inner.progress()
            reward = self._progress - before
        else:
            key = self.inner.state_key()
            self._seen[key] = self._seen.get(key, 0) + 1
            reward += self._seen[key] ** -0.5
        return replace(transition, reward=reward)

    def memory(self) -> list[Any]:
        return [self._progress, self._seen]

    def remember(self, memory: list[Any]) -> None:
        self._progress, self._seen = memory


class Turns(Limited):
    """A limit of actions that cuts the episode."""

    def changed(self, transition: Transition) -> Transition:
        transition = super().changed(transition)
        self.over = self.turn >= self.limit
        return replace(transition, truncated=self.over and not transition.terminated)


class Budget(Limited):
    """A budget of actions that the agent can see, and whose end fails the task."""

    @property
    def instructions(self) -> str:
        told = f"You have a budget of {self.limit} actions; when it is used up, you have failed."
        return f"{self.inner.instructions}\n{told}"

    def begun(self, observation: Observation) -> Observation:
        return self._told(super().begun(observation))

    def changed(self, transition: Transition) -> Transition:
        transition = super().changed(transition)
        spent = self.turn >= self.limit and not transition.truncated
        self.over = spent or transition.terminated or transition.truncated
        return replace(
            transition,
            observation=self._told(transition.observation),
            terminated=transition.terminated or spent,
        )

    def _told(self, observation: Observation) -> Observation:
        text = f"{observation.text}\nBudget left: {self.limit - self.turn}"
        return replace(observation, text=text)


class Actions(Wrapper):
    """Actions are listed, or chosen by number, or said by calling a tool.

    `numbered` understands words as well: which number an action will have some steps from now,
    no oracle can know.
    """

    TOLD: ClassVar[dict[str, str]] = {
        "listed": "What you can do is listed.",
        "numbered": "What you can do is listed; answer with an action or its number.",
        "tool": f"To do something, call {ACT.signature}",
    }

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._kind = choice
        if choice == "tool" and inner.tools:
            raise InputError(f"actions=tool: actions of '{inner.name}' are calls of tools already.")
        if choice != "tool" and Capability.ADMISSIBLE not in inner.capabilities:
            raise InputError(f"actions={choice} needs 'admissible', which '{inner.name}' has not.")
        if choice == "tool":
            self.free_text = False  # type: ignore[misc]

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return (ACT,) if self._kind == "tool" else self.inner.tools

    @property
    def instructions(self) -> str:
        return f"{self.inner.instructions}\n{self.TOLD[self._kind]}"

    def step(self, action: Action) -> Transition:
        if self._kind == "numbered" and action.text.strip().isdecimal():
            known, number = list(self.inner.admissible()), int(action.text)
            if not 1 <= number <= len(known):
                return Transition(Observation(f"There is no action {number}."), valid=False)
            action = Action(known[number - 1])
        elif self._kind == "tool":
            try:
                call = checked(action.call, self.tools) if action.call else None
                call = call or parse_call(action.text, self.tools)
            except NotACall as why:
                return Transition(Observation(str(why)), valid=False)
            action = Action(str(call.arguments["action"]))
        return super().step(action)

    def begun(self, observation: Observation) -> Observation:
        return self._listed(observation)

    def changed(self, transition: Transition) -> Transition:
        listed = self._listed(transition.observation)
        return replace(super().changed(transition), observation=listed)

    def oracle(self) -> Sequence[Action]:
        return [self._said(action) for action in self.inner.oracle()]

    def admissible(self) -> Sequence[str]:
        return [self._said(Action(word)).text for word in self.inner.admissible()]

    def sample_action(self, dice: random.Random) -> Action:
        return self._said(self.inner.sample_action(dice))

    def _said(self, action: Action) -> Action:
        if self._kind != "tool":
            return action
        call = ToolCall(ACT.name, {"action": action.text})
        return Action(str(call), call)

    def _listed(self, observation: Observation) -> Observation:
        known = () if self._kind == "tool" else self.inner.admissible()
        if not known:
            return observation
        if self._kind == "listed":
            lines = ["You can: " + "; ".join(known)]
        else:
            lines = [f"{number}: {word}" for number, word in enumerate(known, 1)]
        return replace(observation, text="\n".join([observation.text, *lines]))


def seen(inner: Environment, choice: str) -> Wrapper:
    """The wrapper behind `observation=…`."""
    return Diff(inner) if choice == "diff" else Look(inner)


def _parts(text: str) -> list[str]:
    """Lines, and the parts of lists within them."""
    return [part for line in text.split("\n") for part in line.split(", ") if part.strip()]
