"""Worlds: environments as sessions see them, and what every environment is held to.

Whatever an environment does wrong becomes an `EnvironmentFault` that says which
call of which environment it was: an exception (`reset` or `step`), or an answer
that is not what the contract asks for (`rubbish`). What it returns passes through
JSON even in this process, so a world behaves the same wherever it lives.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter

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


DESCRIPTION = TypeAdapter(Description)
TASK = TypeAdapter(Task)
ACTION = TypeAdapter(Action)
STARTED: TypeAdapter[tuple[Observation, Signals]] = TypeAdapter(tuple[Observation, Signals])
STEPPED: TypeAdapter[tuple[Transition, Signals]] = TypeAdapter(tuple[Transition, Signals])
ACTIONS: TypeAdapter[list[Action]] = TypeAdapter(list[Action])
WORDS: TypeAdapter[list[str]] = TypeAdapter(list[str])
NOTHING: TypeAdapter[None] = TypeAdapter(None)


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

    def describe(self) -> Answer[Description]:
        environment = self.environment

        def look() -> Description:
            return Description(
                environment.instructions,
                tuple(environment.tools),
                environment.capabilities,
                environment.deterministic,
                tuple(environment.players),
            )

        return self._ask("reset", "description", look, DESCRIPTION)

    def reset(self, task: Task) -> Answer[tuple[Observation, Signals]]:
        environment = self.environment
        return self._ask(
            "reset", "reset", lambda: (environment.reset(task), environment.signals()), STARTED
        )

    def step(self, action: Action) -> Answer[tuple[Transition, Signals]]:
        environment = self.environment
        return self._ask(
            "step", "step", lambda: (environment.step(action), environment.signals()), STEPPED
        )

    def oracle(self) -> Answer[list[Action]]:
        return self._ask("step", "oracle", lambda: list(self.environment.oracle()), ACTIONS)

    def admissible(self) -> Answer[list[str]]:
        return self._ask("step", "admissible", lambda: list(self.environment.admissible()), WORDS)

    def sample(self, seed: int) -> Answer[Action]:
        dice = random.Random(seed)
        return self._ask("step", "sample", lambda: self.environment.sample_action(dice), ACTION)

    def close(self) -> None:
        """Close the environment; what goes wrong is logged, for the episode is over."""
        try:
            self.environment.close()
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).warning("%s: close raised %s", self.label, said(error))

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
        self.tools = description.tools
        self.capabilities = description.capabilities
        self.players = description.players

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        return self._keeper.reset(_copy(TASK, task)).value

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        return self._keeper.step(_sent(action)).value

    async def oracle(self) -> list[Action]:
        return self._keeper.oracle().value

    async def admissible(self) -> list[str]:
        return self._keeper.admissible().value

    async def sample(self, seed: int) -> Action:
        return self._keeper.sample(seed).value

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
