"""Worlds: environments as sessions see them, and what every environment is held to.

Whatever an environment does wrong becomes an `EnvironmentFault` that says which
call of which environment it was: an exception (`reset` or `step`), or an answer
that is not what the contract asks for (`rubbish`). What it returns passes through
JSON even in this process, so a world behaves the same wherever it lives.
"""

from __future__ import annotations

import logging
import math
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ConfigDict, TypeAdapter

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Signals,
    Transition,
    World,
)
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Task
from palaestra.core.tool import Tool

T = TypeVar("T")

BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""How snapshots travel as JSON."""

MAX_BYTES = 64 * 2**20
"""The largest answer of an environment, as JSON; anything larger is rubbish."""


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a world before its first task."""

    instructions: str
    tools: tuple[Tool, ...]
    capabilities: frozenset[Capability]
    deterministic: bool
    players: tuple[str, ...] = ("agent",)


Started = tuple[Observation, Signals, tuple[Tool, ...] | None]
"""A reset's answer; with the tools on offer, unless they are those of the description."""

Stepped = tuple[Transition, Signals, tuple[Tool, ...] | None]
"""A step's answer; with the tools on offer, if they are others than before it."""

Restored = tuple[Signals, tuple[Tool, ...] | None]
"""A restored snapshot's answer; with the tools on offer, as a reset's."""

DESCRIPTION = TypeAdapter(Description)
TASK = TypeAdapter(Task)
ACTION = TypeAdapter(Action)
STARTED: TypeAdapter[Started] = TypeAdapter(Started)
STEPPED: TypeAdapter[Stepped] = TypeAdapter(Stepped)
ACTIONS: TypeAdapter[list[Action]] = TypeAdapter(list[Action])
WORDS: TypeAdapter[list[str]] = TypeAdapter(list[str])
NOTHING: TypeAdapter[None] = TypeAdapter(None)
RESTORED: TypeAdapter[Restored] = TypeAdapter(Restored)
SAVED: TypeAdapter[bytes] = TypeAdapter(bytes, config=BYTES)


class Answer(NamedTuple, Generic[T]):
    """What an environment returned, after its way through JSON."""

    value: T
    data: bytes  # the JSON


class Keeper:
    """Holds one environment to its contract: every answer is checked JSON.

    All methods raise `EnvironmentFault` when the environment breaks the contract; an
    `InputError` of the environment (a missing system part, an undeclared capability)
    is the caller's to see and passes unchanged.
    """

    def __init__(self, environment: Environment, label: str) -> None:
        self.environment = environment
        self.label = label  # what faults call it
        self._described: tuple[Tool, ...] = ()
        self._offered: tuple[Tool, ...] = ()

    def describe(self) -> Answer[Description]:
        environment = self.environment

        def look() -> Description:
            self._described = self._offered = tuple(environment.tools)
            return Description(
                environment.instructions,
                self._described,
                environment.capabilities,
                environment.deterministic,
                tuple(environment.players),
            )

        return self._ask("reset", "description", look, DESCRIPTION)

    def reset(self, task: Task) -> Answer[Started]:
        environment = self.environment

        def begin() -> Started:
            first = environment.reset(task)
            return first, self._signals(), self._others_than(self._described)

        return self._ask("reset", "reset", begin, STARTED)

    def step(self, action: Action) -> Answer[Stepped]:
        environment = self.environment

        def go_on() -> Stepped:
            transition = environment.step(action)
            return transition, self._signals(), self._others_than(self._offered)

        return self._ask("step", "step", go_on, STEPPED)

    def oracle(self) -> Answer[list[Action]]:
        return self._ask("step", "oracle", lambda: list(self.environment.oracle()), ACTIONS)

    def admissible(self) -> Answer[list[str]]:
        return self._ask("step", "admissible", lambda: list(self.environment.admissible()), WORDS)

    def sample(self, seed: int) -> Answer[Action]:
        dice = random.Random(seed)
        return self._ask("step", "sample", lambda: self.environment.sample_action(dice), ACTION)

    def snapshot(self) -> Answer[bytes]:
        return self._ask("step", "snapshot", self.environment.snapshot, SAVED)

    def restore(self, snapshot: bytes) -> Answer[Restored]:
        environment = self.environment

        def return_to() -> Restored:
            environment.restore(snapshot)
            return self._signals(), self._others_than(self._described)

        return self._ask("step", "restore", return_to, RESTORED)

    def close(self) -> None:
        """Close the environment; what goes wrong is logged, for the episode is over."""
        try:
            self.environment.close()
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).warning("%s: close raised %s", self.label, said(error))

    def _signals(self) -> Signals:
        """The declared signals. JSON would make a progress of NaN one that is undeclared."""
        signals = self.environment.signals()
        progress = signals.progress
        if isinstance(progress, float) and not math.isfinite(progress):
            detail = f"{self.label}: progress is {progress}, but must be a number from 0 to 1"
            raise EnvironmentFault("rubbish", detail)
        return signals

    def _others_than(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...] | None:
        """The tools on offer; None if they are these."""
        self._offered = tuple(self.environment.tools)
        same = self._offered is tools or self._offered == tools
        return None if same else self._offered

    def _ask(self, kind: str, verb: str, call: Callable[[], T], shape: TypeAdapter[T]) -> Answer[T]:
        try:
            answer = call()
        except (InputError, EnvironmentFault):
            raise
        except (Exception, SystemExit) as error:
            detail = f"{self.label}: {verb} raised {said(error)}"
            raise EnvironmentFault(kind, detail) from error
        try:
            data = shape.dump_json(answer, exclude_defaults=True, warnings="error")
            value = shape.validate_json(data, strict=True)
        except ValueError as error:
            detail = f"{self.label}: {verb} returned what the contract does not allow: {error}"
            raise EnvironmentFault("rubbish", shortened(detail)) from error
        if len(data) > MAX_BYTES:
            detail = f"{self.label}: {verb} returned {len(data):,} bytes; {MAX_BYTES:,} are allowed"
            raise EnvironmentFault("rubbish", detail)
        return Answer(value, data)


class LocalWorld(World):
    """An environment in this process: for tests, tiny runs and runs without workers.

    Nothing protects this process from an environment that crashes or hangs.
    """

    def __init__(self, environment: Environment) -> None:
        self._keeper = Keeper(environment, type(environment).__name__)
        self._closed = False
        description = self._keeper.describe().value
        self.instructions = description.instructions
        self.tools = self._described = description.tools
        self.capabilities = description.capabilities
        self.deterministic = description.deterministic
        self.players = description.players

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        first, signals, tools = self._keeper.reset(_copy(TASK, task)).value
        self.tools = self._described if tools is None else tools
        return first, signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        transition, signals, tools = self._keeper.step(_sent(action)).value
        self.tools = self.tools if tools is None else tools
        return transition, signals

    async def oracle(self) -> list[Action]:
        return self._keeper.oracle().value

    async def admissible(self) -> list[str]:
        return self._keeper.admissible().value

    async def sample(self, seed: int) -> Action:
        return self._keeper.sample(seed).value

    async def snapshot(self) -> bytes:
        return self._keeper.snapshot().value

    async def restore(self, snapshot: bytes) -> Signals:
        signals, tools = self._keeper.restore(snapshot).value
        self.tools = self._described if tools is None else tools
        return signals

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._keeper.close()


def said(error: BaseException) -> str:
    """An exception in one line: its type, its words and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return shortened(f"{type(error).__name__}: {error}") + place


def shortened(text: str, length: int = 2000) -> str:
    """At most `length` characters of a text that may be of any size."""
    return text if len(text) <= length else text[: length - 2] + " …"


def _sent(action: Action) -> Action:
    """What a worker would receive of an action: words as they are, if they can be sent."""
    if action.call is None:
        action.text.encode()
        return action
    return _copy(ACTION, action)


def _copy(shape: TypeAdapter[T], value: Any) -> T:
    """What a worker would receive: the value after its way through JSON."""
    return shape.validate_json(shape.dump_json(value, warnings="error"), strict=True)
