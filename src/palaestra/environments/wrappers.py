"""Knobs that make one environment many, written behind its id like a query.

    babyai/GoToLocalS5N2?observation=diff&errors=0.1&turns=20

`observation=diff`      after the first, an observation says what is new (+) and what is gone (-)
`reward=sparse`         1 at success and 0 elsewhere
`reward=progress`       the progress that an action made
`reward=intrinsic`      plus one over the root of how often the state was seen in the episode
`turns=N`               truncated after N actions
`latency=S`             seconds of sleep before each answer
`errors=P`              a share of actions meets a passing error: nothing happens, try again
`stale=P`               a share of observations is the one before, once more
`partial=P`             a share of observations is cut in half

Chance is drawn from the task's seed and the number of the action, so wrapped worlds stay
reproducible, can be snapshotted, and an oracle knows which of its actions will have to be repeated.
Wrappers compose in the order of this list, whatever the order of writing.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
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
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.environments.snapshots import opened, sealed

AGAIN = "Something went wrong for a moment, and nothing happened. Try again."
VERSION = "1"


class Wrapper(Environment):
    """An environment around another one; by itself it changes nothing."""

    keyed: ClassVar[bool] = False
    """Whether what happens next depends on how many actions there were."""

    def __init__(self, inner: Environment) -> None:
        self.inner = inner
        self.name = inner.name
        self.players = inner.players
        self.free_text = inner.free_text  # type: ignore[misc]
        self.deterministic = inner.deterministic  # type: ignore[misc]
        self.capabilities = inner.capabilities  # type: ignore[misc]
        self.seed = self.turn = 0

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return self.inner.tools

    @property
    def instructions(self) -> str:
        return self.inner.instructions

    @property
    def typical_turns(self) -> int:
        return self.inner.typical_turns

    @property
    def names_actions(self) -> bool:
        return self.inner.names_actions

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        raise InputError(f"'{environment}' is wrapped; its tasks are those of what is inside.")

    def reset(self, task: Task) -> Observation:
        self.seed, self.turn = task.seed, 0
        return self.begun(self.inner.reset(task))

    def step(self, action: Action) -> Transition:
        transition = self.inner.step(action)
        return self.changed(transition) if transition.valid else transition

    def begun(self, observation: Observation) -> Observation:
        """What is made of an episode's first observation."""
        return observation

    def changed(self, transition: Transition) -> Transition:
        """What is made of an action that was understood."""
        self.turn += 1
        return transition

    def close(self) -> None:
        self.inner.close()

    def turn_of(self) -> str:
        return self.inner.turn_of()

    def state_key(self) -> str:
        key = self.inner.state_key()
        return f"{key}/{self.turn}" if self.keyed else key

    def snapshot(self) -> bytes:
        head = json.dumps([self.seed, self.turn, self.memory()]).encode()
        return sealed(self._id, VERSION, head + b"\n" + self.inner.snapshot())

    def restore(self, snapshot: bytes) -> None:
        head, _, inner = opened(snapshot, self._id, VERSION).partition(b"\n")
        self.inner.restore(inner)
        self.seed, self.turn, memory = json.loads(head)
        self.remember(memory)

    def memory(self) -> Any:
        """What the wrapper itself must remember of the episode, as JSON."""
        return None

    def remember(self, memory: Any) -> None:
        """Take `memory` up again."""

    def progress(self) -> float:
        return self.inner.progress()

    def oracle(self) -> Sequence[Action]:
        return self.inner.oracle()

    def admissible(self) -> Sequence[str]:
        return self.inner.admissible()

    def sample_action(self, dice: random.Random) -> Action:
        return self.inner.sample_action(dice)

    @property
    def _id(self) -> str:
        return f"{type(self).__name__}/{self.name}".replace(" ", "_")

    def _happens(self, what: str, share: float, turn: int) -> bool:
        return random.Random(f"{what} {self.seed} {turn}").random() < share


class Diff(Wrapper):
    """Observations say what has changed."""

    def __init__(self, inner: Environment, choice: str) -> None:
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
        return replace(super().changed(transition), observation=Observation(text))

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


class Turns(Wrapper):
    """A limit of actions."""

    keyed = True

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._limit, self._over = int(choice), False

    @property
    def typical_turns(self) -> int:
        return min(self._limit, self.inner.typical_turns)

    def begun(self, observation: Observation) -> Observation:
        self._over = False
        return observation

    def step(self, action: Action) -> Transition:
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        return super().step(action)

    def changed(self, transition: Transition) -> Transition:
        transition = super().changed(transition)
        self._over = self.turn >= self._limit
        return replace(transition, truncated=self._over and not transition.terminated)

    def memory(self) -> bool:
        return self._over

    def remember(self, memory: bool) -> None:
        self._over = memory

    def oracle(self) -> Sequence[Action]:
        """Nothing where the way is longer than what is left."""
        way = list(self.inner.oracle())
        return way if len(way) <= self._limit - self.turn else []


class Latency(Wrapper):
    """Answers take their time."""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._seconds = float(choice)

    def changed(self, transition: Transition) -> Transition:
        time.sleep(self._seconds)
        return super().changed(transition)


class Errors(Wrapper):
    """Some actions meet a passing error."""

    keyed = True

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self._share, self._over = float(choice), False

    def begun(self, observation: Observation) -> Observation:
        self._over = False
        return observation

    def step(self, action: Action) -> Transition:
        if self._over or not self._happens("error", self._share, self.turn):
            return super().step(action)
        self.turn += 1
        return Transition(Observation(AGAIN))

    def changed(self, transition: Transition) -> Transition:
        self._over = transition.terminated or transition.truncated
        return super().changed(transition)

    def memory(self) -> bool:
        return self._over

    def remember(self, memory: bool) -> None:
        self._over = memory

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


# ── choosing ─────────────────────────────────────────────────────────────────

KNOBS: dict[str, tuple[Callable[[Environment, str], Wrapper], str]] = {
    "errors": (Errors, "a share from 0 to 1"),
    "stale": (Stale, "a share from 0 to 1"),
    "partial": (Partial, "a share from 0 to 1"),
    "observation": (Diff, "diff"),
    "reward": (Reward, "sparse, progress, intrinsic"),
    "latency": (Latency, "seconds"),
    "turns": (Turns, "a number of actions"),
}
"""Name to wrapper and what may be chosen; the first is the innermost."""


def split(id: str) -> tuple[str, dict[str, str]]:
    """The id without its query, and the query.

    Raises:
        UnknownName: there is no such knob.
        InputError: a value is not what the knob takes, or a knob is given twice.
    """
    plain, asked, query = id.partition("?")
    found: dict[str, str] = {}
    for part in query.split("&") if asked else ():
        name, _, value = part.partition("=")
        if name not in KNOBS:
            raise UnknownName("knob of environments", name, KNOBS)
        if name in found:
            raise InputError(f"'{id}' sets '{name}' twice; set it once.")
        if not _fits(KNOBS[name][1], value):
            raise InputError(f"'{name}={value}' in '{id}' cannot be; give {KNOBS[name][1]}.")
        found[name] = value
    return plain, found


def wrapped(world: Environment, knobs: Mapping[str, str]) -> Environment:
    """The world with its knobs set.

    Raises:
        InputError: the world lacks what a knob needs.
    """
    for name, (wrapper, _) in KNOBS.items():
        if name in knobs:
            world = wrapper(world, knobs[name])
    return world


def _fits(takes: str, value: str) -> bool:
    if takes == "a number of actions":
        return value.isdecimal() and int(value) > 0
    if takes in ("seconds", "a share from 0 to 1"):
        number = re.fullmatch(r"\d+(\.\d+)?|\.\d+", value)
        return number is not None and (takes == "seconds" or float(value) <= 1)
    return value in takes.split(", ")


def _parts(text: str) -> list[str]:
    """Lines, and the parts of lists within them."""
    return [part for line in text.split("\n") for part in line.split(", ") if part.strip()]
