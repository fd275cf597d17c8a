"""Wrappers for whom and for how much: a user with preferences, and actions that cost.

After UA² (Yang et al. 2024, Towards Unified Alignment Between Agents, Humans, and Environment):
any world gets a user whose wishes go beyond the task, told or to be guessed from displeasure, and
a meter of what is spent. Success stays the world's own: whether the user was pleased is in rewards
and in `info`, so the two can be told apart.
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
    Transition,
)
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.environments.wrapper import Ending, Wrapper

WORDS = 8  # of a short reply, at most
DISPLEASED = 0.1  # reward lost by an action against a preference
DEAREST = 3  # coins
ANY, HIDDEN = "any", "hidden"


class Profile(Wrapper):
    """Each task has a user, who minds how it is done."""

    keyed = True
    WISHES: ClassVar[dict[str, str]] = {
        "brief": f"at most {WORDS} words in a reply",
        "quick": "at most {hurry} actions in all",
        "steady": "never back to where you were before",
    }

    def __init__(self, inner: Environment, choice: str) -> None:
        """`choice` names wishes, or `any` for a user per task; `hidden` leaves them untold."""
        super().__init__(inner)
        *names, last = choice.split(",")
        self._hidden = last == HIDDEN
        self._names = tuple(names if self._hidden and names else [*names, last])
        for name in self._names:
            if name not in (*self.WISHES, ANY):
                raise UnknownName("wish of a user", name, (*self.WISHES, ANY, HIDDEN))
        self._possible = [*self.WISHES]
        if Capability.STATE_KEY not in inner.capabilities:
            self._possible.remove("steady")
            if "steady" in self._names:
                raise InputError(f"profile=steady needs 'state_key', which '{inner.name}' has not.")
        self._hurry = max(1, inner.typical_turns // 2)
        self._wishes: tuple[str, ...] = ()
        self._seen: list[str] = []  # keys of states, the present one last
        self._world = inner
        while isinstance(self._world, Wrapper):
            self._world = self._world.inner

    def reset(self, task: Task) -> Observation:
        dice = random.Random(f"user {task.seed}")
        drawn = dice.sample(self._possible, dice.randint(1, len(self._possible)))
        wanted = drawn if ANY in self._names else self._names
        self._wishes = tuple(name for name in self.WISHES if name in wanted)
        return super().reset(task)

    def begun(self, observation: Observation) -> Observation:
        self._seen = [self._world.state_key()] if "steady" in self._wishes else []
        if self._hidden:
            return observation
        told = "; ".join(self._said(name) for name in self._wishes)
        return replace(observation, text=f"{observation.text}\nThe user wants: {told}.")

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if not transition.valid:
            return transition
        broken = [name for name in self._wishes if self._breaks(name, action)]
        if not broken:
            return transition
        why = "" if self._hidden else f": {'; '.join(self._said(name) for name in broken)}"
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
        return [self._wishes, self._seen]

    def remember(self, memory: list[Any]) -> None:
        self._wishes, self._seen = tuple(memory[0]), memory[1]

    def _said(self, name: str) -> str:
        return self.WISHES[name].format(hurry=self._hurry)

    def _breaks(self, name: str, action: Action) -> bool:
        """Whether an action that was understood went against a wish."""
        if name == "brief":
            return len(action.text.split()) > WORDS
        if name == "quick":
            return self.turn > self._hurry
        key = self._world.state_key()
        if key == self._seen[-1]:
            return False  # who stays does not come back
        known = key in self._seen
        self._seen = [*(old for old in self._seen if old != key), key]
        return known


class Purse(Ending):
    """Actions cost coins; whose purse is empty has failed.

    What an action costs follows from its first word (of a call, the tool's name) and the task, and
    is told when it is paid. What was paid is in `info`, too.
    """

    what = "coins"
    how = f" An action costs 1 to {DEAREST} of them, by its first word."

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self.limit = int(choice)
        self.left = self.limit

    @property
    def typical_turns(self) -> int:
        return min(self.limit, self.inner.typical_turns)

    @property
    def instructions(self) -> str:
        told = f"You have {self.limit} {self.what}; when none is left, you have failed.{self.how}"
        return f"{self.inner.instructions}\n{told}"

    def begun(self, observation: Observation) -> Observation:
        self.left = self.limit
        return self._told(super().begun(observation))

    def step(self, action: Action) -> Transition:
        offered = self.tools  # they may change with what is done
        transition = super().step(action)
        if not transition.valid:
            return transition
        price = self.price(action, offered)
        self.left -= price
        spent = self.left <= 0 and not transition.truncated
        self.over = spent or transition.terminated or transition.truncated
        return replace(
            transition,
            observation=self._told(transition.observation),
            terminated=transition.terminated or spent,
            info={**transition.info, "paid": price},
        )

    def price(self, action: Action, tools: Sequence[Tool]) -> int:
        """Coins for an action that is understood where these tools are on offer."""
        verb = action.call.name if action.call else (re.findall(r"\w+", action.text) or [""])[0]
        return random.Random(f"price {self.seed} {verb.lower()}").randint(1, DEAREST)

    def oracle(self) -> Sequence[Action]:
        """Nothing where the way costs more than what is left."""
        way, left = list(self.inner.oracle()), self.left
        for action in way:
            if left <= 0:
                return []
            left -= self.price(action, self.tools)
        return way

    def state_key(self) -> str:
        return f"{super().state_key()}/{self.left}"

    def memory(self) -> Any:
        return [self.over, self.left]

    def remember(self, memory: Any) -> None:
        self.over, self.left = memory

    def _told(self, observation: Observation) -> Observation:
        text = f"{observation.text}\n{self.what.capitalize()} left: {max(self.left, 0)}"
        return replace(observation, text=text)


class Calls(Purse):
    """So many calls of tools; words cost nothing."""

    what = "calls of tools"
    how = ""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner, choice)
        if not inner.tools:
            raise InputError(f"calls={choice} needs tools, which '{inner.name}' has not.")

    @property
    def typical_turns(self) -> int:
        return self.inner.typical_turns

    def price(self, action: Action, tools: Sequence[Tool]) -> int:
        try:
            return int(action.call is not None or bool(parse_call(action.text, tools)))
        except NotACall:
            return 0
