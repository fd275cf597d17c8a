"""Wrappers that change observations, rewards, limits, or the format of actions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.message import Image, ToolCall
from palaestra.core.rare_capabilities import answer_of, caption_of, picture_of, sample_action
from palaestra.core.tool import ACT, NotACall, Tool, checked, parse_call
from palaestra.environments.shared.png_images import grey
from palaestra.environments.wrappers.wrapper import (
    Limited,
    Wrapper,
    require_capability,
    require_one_player,
)


class Look(Wrapper):
    """A picture beside each observation's text, or in place of it.

    In place of it (`pixels`), the first observation says what no picture shows, such as the goal,
    and later ones say nothing; only an invalid action is answered in words. `blank` is the control
    of `pixels`: pictures of the same size in one grey.
    """

    def __init__(self, inner: Environment, value: str = "image") -> None:
        super().__init__(inner, value)
        self._kind = value

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_capability(spec, Capability.PICTURE, f"observation={value}")
        return replace(spec, images=True)

    def after_reset(self, observation: Observation) -> Observation:
        return self._seen(observation, caption_of(self.inner))

    def after_step(self, transition: Transition) -> Transition:
        seen = self._seen(transition.observation)
        return replace(super().after_step(transition), observation=seen)

    def _seen(self, observation: Observation, caption: str = "") -> Observation:
        text = observation.text if self._kind == "image" else caption
        picture = picture_of(self.inner)
        if self._kind == "blank":
            picture = grey(picture)
        return replace(observation, text=text, images=(Image.of(picture),))


class Diff(Wrapper):
    """Observations that list only what has changed."""

    def __init__(self, inner: Environment, value: str = "") -> None:
        super().__init__(inner, value)
        self._last: list[str] = []

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, "observation=diff")
        return spec

    def after_reset(self, observation: Observation) -> Observation:
        self._last = _parts(observation.text)
        return observation

    def after_step(self, transition: Transition) -> Transition:
        parts = _parts(transition.observation.text)
        new = [f"+ {part}" for part in parts if part not in self._last]
        gone = [f"- {part}" for part in self._last if part not in parts]
        self._last = parts
        text = "\n".join(new + gone) or "nothing new"
        return replace(
            super().after_step(transition), observation=replace(transition.observation, text=text)
        )

    def memory(self) -> list[str]:
        return self._last

    def remember(self, memory: list[str]) -> None:
        self._last = memory


class Reward(Wrapper):
    """Rewards that replace or extend the environment's own."""

    NEEDS: ClassVar[dict[str, Capability | None]] = {
        "sparse": None,
        "progress": Capability.PROGRESS,
        "intrinsic": Capability.STATE_KEY,
    }

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._kind, self._progress = value, 0.0
        self._seen: dict[str, int] = {}

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"reward={value}")
        needed = cls.NEEDS[value]
        if needed is not None and needed not in spec.capabilities:
            raise InputError(
                f"reward={value} needs '{needed}', which '{spec.name}' does not declare; "
                "choose another reward."
            )
        return spec

    def after_reset(self, observation: Observation) -> Observation:
        self._progress = self.inner.progress() if self._kind == "progress" else 0.0
        self._seen = {self.inner.state_key(): 1} if self._kind == "intrinsic" else {}
        return observation

    def after_step(self, transition: Transition) -> Transition:
        reward = super().after_step(transition).reward
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
    """A limit on actions that truncates the episode."""

    def after_step(self, transition: Transition) -> Transition:
        transition = super().after_step(transition)
        self.over = self.turn >= self.limit
        return replace(transition, truncated=self.over and not transition.terminated)


class Budget(Limited):
    """A budget of actions that the agent sees; the task fails when it is spent."""

    @property
    def instructions(self) -> str:
        note = f"You have a budget of {self.limit} actions; when it is used up, you have failed."
        return f"{self.inner.instructions}\n{note}"

    def after_reset(self, observation: Observation) -> Observation:
        return self._with_balance(super().after_reset(observation))

    def after_step(self, transition: Transition) -> Transition:
        transition = super().after_step(transition)
        spent = self.turn >= self.limit and not transition.truncated
        self.over = spent or transition.terminated or transition.truncated
        return replace(
            transition,
            observation=self._with_balance(transition.observation),
            terminated=transition.terminated or spent,
        )

    def _with_balance(self, observation: Observation) -> Observation:
        text = f"{observation.text}\nBudget left: {self.limit - self.turn}"
        return replace(observation, text=text)


class Actions(Wrapper):
    """Actions that are listed, chosen by number, or made by calling a tool.

    `numbered` accepts the action's text as well: an oracle cannot know which number an action will
    have in a later step.
    """

    INSTRUCTIONS: ClassVar[dict[str, str]] = {
        "listed": "What you can do is listed.",
        "numbered": "What you can do is listed; answer with an action or its number.",
        "tool": f"To do something, call {ACT.signature}",
    }

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._kind = value

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        if value == "tool" and spec.tools:
            raise InputError(
                f"actions=tool is redundant, because actions of '{spec.name}' are tool calls "
                "already; leave it out."
            )
        if value != "tool" and Capability.ADMISSIBLE not in spec.capabilities:
            raise InputError(
                f"actions={value} needs 'admissible', which '{spec.name}' does not declare; "
                "leave the knob out."
            )
        return replace(spec, free_text=False, tools=True) if value == "tool" else spec

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return (ACT,) if self._kind == "tool" else self.inner.tools

    @property
    def instructions(self) -> str:
        return f"{self.inner.instructions}\n{self.INSTRUCTIONS[self._kind]}"

    def step(self, action: Action) -> Transition:
        if self._kind == "numbered" and action.text.strip().isdecimal():
            known, number = list(self.inner.admissible()), int(action.text)
            if not 1 <= number <= len(known):
                return Transition(Observation(f"There is no action {number}."), valid=False)
            action = replace(action, text=known[number - 1], call=None)
        elif self._kind == "tool":
            try:
                call = checked(action.call, self.tools) if action.call else None
                call = call or parse_call(action.text, self.tools)
            except NotACall as why:
                return Transition(Observation(str(why)), valid=False)
            action = replace(action, text=str(call.arguments["action"]), call=None)
        return super().step(action)

    def after_reset(self, observation: Observation) -> Observation:
        return self._listed(observation)

    def after_step(self, transition: Transition) -> Transition:
        listed = self._listed(transition.observation)
        return replace(super().after_step(transition), observation=listed)

    def oracle(self) -> Sequence[Action]:
        return [self._as_call(action) for action in self.inner.oracle()]

    def answer(self) -> Action:
        return self._as_call(answer_of(self.inner))

    def admissible(self) -> Sequence[str]:
        return [self._as_call(Action(word)).text for word in self.inner.admissible()]

    def sample_action(self, rng: random.Random) -> Action:
        return self._as_call(sample_action(self.inner, rng))

    def _as_call(self, action: Action) -> Action:
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


def _parts(text: str) -> list[str]:
    """Return the lines of a text, split at the commas of lists."""
    return [part for line in text.split("\n") for part in line.split(", ") if part.strip()]
