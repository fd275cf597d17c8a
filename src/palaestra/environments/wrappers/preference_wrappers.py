"""Wrappers for preferences and costs: a user with preferences, and actions that cost coins.

After UA² (Yang et al. 2024, Towards Unified Alignment Between Agents, Humans, and Environment):
any environment gets a user with preferences beyond the task, shown to the agent or inferred from
the user's complaints, and a cost meter. Success stays the environment's own: whether preferences
were met is in rewards and in `info`, so the two can be separated.
"""

from __future__ import annotations

import hashlib
import random
import re
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
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.environments.wrappers.wrapper import Ending, Wrapper, require_one_player

WORDS = 8  # the most words of a short reply
DISPLEASED = 0.1  # reward lost by an action against a preference
DEAREST = 3  # coins: the highest price of an action
ANY, HIDDEN = "any", "hidden"


class Profile(Wrapper):
    """A user for each task, with preferences about how it is done."""

    keyed = True
    PREFERENCES: ClassVar[dict[str, str]] = {
        "brief": f"at most {WORDS} words in a reply",
        "quick": "at most {hurry} actions in all",
        "steady": "never back to where you were before",
    }

    def __init__(self, inner: Environment, value: str) -> None:
        """`value` names preferences, or `any` for a user per task; `hidden` does not show them."""
        super().__init__(inner, value)
        self._names, self._hidden = _preferences(value)
        self._possible = [*self.PREFERENCES]
        if Capability.STATE_KEY not in inner.spec.capabilities:
            self._possible.remove("steady")
        self._hurry = max(1, inner.spec.typical_turns // 2)
        self._preferences: tuple[str, ...] = ()
        self._seen: list[str] = []  # state keys, the current one last
        self._world = inner
        while isinstance(self._world, Wrapper):
            self._world = self._world.inner

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"profile={value}")
        names, _ = _preferences(value)
        for name in names:
            if name not in (*cls.PREFERENCES, ANY):
                raise UnknownName("preference of a user", name, (*cls.PREFERENCES, ANY, HIDDEN))
        if "steady" in names and Capability.STATE_KEY not in spec.capabilities:
            raise InputError(
                f"profile=steady needs 'state_key', which '{spec.name}' does not declare; "
                "choose another preference."
            )
        return spec

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"user {task.seed}")
        sampled = rng.sample(self._possible, rng.randint(1, len(self._possible)))
        wanted = sampled if ANY in self._names else self._names
        self._preferences = tuple(name for name in self.PREFERENCES if name in wanted)
        return super().reset(task)

    def after_reset(self, observation: Observation) -> Observation:
        self._seen = [self._world.state_key()] if "steady" in self._preferences else []
        if self._hidden:
            return observation
        note = "; ".join(self._text(name) for name in self._preferences)
        return replace(observation, text=f"{observation.text}\nThe user wants: {note}.")

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if not transition.valid:
            return transition
        broken = [name for name in self._preferences if self._breaks(name, action)]
        if not broken:
            return transition
        why = "" if self._hidden else f": {'; '.join(self._text(name) for name in broken)}"
        text = f"{transition.observation.text}\nThe user is not pleased{why}."
        return replace(
            transition,
            observation=replace(transition.observation, text=text),
            reward=transition.reward - DISPLEASED * len(broken),
            info={**transition.info, "displeased": broken},
        )

    def state_key(self) -> str:
        seen = hashlib.blake2b("\n".join(sorted(self._seen)).encode(), digest_size=8).hexdigest()
        return f"{super().state_key()}/{seen}"

    def memory(self) -> list[Any]:
        return [self._preferences, self._seen]

    def remember(self, memory: list[Any]) -> None:
        self._preferences, self._seen = tuple(memory[0]), memory[1]

    def _text(self, name: str) -> str:
        return self.PREFERENCES[name].format(hurry=self._hurry)

    def _breaks(self, name: str, action: Action) -> bool:
        """Return whether a valid action broke a preference."""
        if name == "brief":
            return len(action.text.split()) > WORDS
        if name == "quick":
            return self.turn > self._hurry
        key = self._world.state_key()
        if key == self._seen[-1]:
            return False  # staying in a state is not a return to it
        known = key in self._seen
        self._seen = [*(old for old in self._seen if old != key), key]
        return known


class SpendingBudget(Ending):
    """A spending budget in coins; the task fails when it is spent.

    The price of an action depends on its first word (for a call, the tool's name) and the task.
    The agent sees what is left after each action, and `info` has the price.
    """

    what = "coins"
    how = f" An action costs 1 to {DEAREST} of them, by its first word."

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self.limit = int(value)
        self.left = self.limit

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"coins={value}")
        return replace(spec, typical_turns=min(int(value), spec.typical_turns))

    @property
    def instructions(self) -> str:
        note = f"You have {self.limit} {self.what}; when none is left, you have failed.{self.how}"
        return f"{self.inner.instructions}\n{note}"

    def after_reset(self, observation: Observation) -> Observation:
        self.left = self.limit
        return self._with_balance(super().after_reset(observation))

    def step(self, action: Action) -> Transition:
        offered = self.tools  # an action may change them
        transition = super().step(action)
        if not transition.valid:
            return transition
        price = self.price(action, offered)
        self.left -= price
        spent = self.left <= 0 and not transition.truncated
        self.over = spent or transition.terminated or transition.truncated
        return replace(
            transition,
            observation=self._with_balance(transition.observation),
            terminated=transition.terminated or spent,
            info={**transition.info, "paid": price},
        )

    def price(self, action: Action, tools: Sequence[Tool]) -> int:
        """Return the price in coins of a valid action, given the tools available before it."""
        verb = action.call.name if action.call else (re.findall(r"\w+", action.text) or [""])[0]
        return random.Random(f"price {self.seed} {verb.lower()}").randint(1, DEAREST)

    def oracle(self) -> Sequence[Action]:
        """Return the inner plan; empty if it costs more than what is left."""
        plan, left = list(self.inner.oracle()), self.left
        for action in plan:
            if left <= 0:
                return []
            left -= self.price(action, self.tools)
        return plan

    def state_key(self) -> str:
        return f"{super().state_key()}/{self.left}"

    def memory(self) -> Any:
        return [self.over, self.left]

    def remember(self, memory: Any) -> None:
        self.over, self.left = memory

    def _with_balance(self, observation: Observation) -> Observation:
        text = f"{observation.text}\n{self.what.capitalize()} left: {max(self.left, 0)}"
        return replace(observation, text=text)


class Calls(SpendingBudget):
    """A budget of tool calls; text without a call costs nothing."""

    what = "calls of tools"
    how = ""

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"calls={value}")
        if not spec.tools:
            raise InputError(
                f"calls={value} needs tools, which '{spec.name}' does not have; leave the knob out."
            )
        return spec

    def price(self, action: Action, tools: Sequence[Tool]) -> int:
        try:
            return int(action.call is not None or bool(parse_call(action.text, tools)))
        except NotACall:
            return 0


def _preferences(value: str) -> tuple[tuple[str, ...], bool]:
    """Return the named preferences, and whether they are hidden from the agent."""
    *names, last = value.split(",")
    hidden = last == HIDDEN
    return tuple(names if hidden and names else [*names, last]), hidden
