"""Environments as sessions use them, with every result checked against the contract.

Each error of an environment becomes an `EnvironmentFault` that names the call and
the environment: an exception (`reset` or `step`), or a result that violates the
contract (`rubbish`). Results pass through JSON even in this process, or come out as
if they had (`plain_steps.py`), so an environment behaves the same in any process.
"""

from __future__ import annotations

import logging
import math
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter

from palaestra.core.element import Element
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Environment,
    Observation,
    Sight,
    Signals,
    Stakes,
    Transition,
)
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.rare_capabilities import (
    answer_of,
    observed_by,
    sample_action,
    sight_of,
    signals_of,
)
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.rollout.plain_steps import as_received
from palaestra.rollout.wire import BytesWire, Wire

T = TypeVar("T")

MAX_BYTES = 64 * 2**20
"""The largest serialized result of an environment; anything larger violates the contract."""


NO_STAKES = Stakes()  # of a single player


@dataclass(frozen=True, slots=True)
class Description:
    """The facts about an environment before its first task."""

    instructions: str
    tools: tuple[Tool, ...]
    capabilities: frozenset[Capability]
    deterministic: bool
    players: tuple[str, ...] = ("agent",)
    stakes: Stakes = NO_STAKES
    token_time: bool = False


Started = tuple[Observation, Signals, tuple[Tool, ...] | None]
"""The result of a reset, with the available tools unless they are those of the description."""

Stepped = tuple[Transition, Signals, tuple[Tool, ...] | None]
"""The result of a step, with the available tools if they have changed."""

Restored = tuple[Signals, tuple[Tool, ...] | None]
"""The result of a restored snapshot, with the available tools as after a reset."""

Looked = tuple[Observation, tuple[Element, ...]]
"""The views of a state: an observation that holds the picture, and the elements."""

DESCRIPTION: Wire[Description] = Wire(Description)
TASK = TypeAdapter(Task)
ACTION = TypeAdapter(Action)
STARTED: Wire[Started] = Wire(Started)
STEPPED: Wire[Stepped] = Wire(Stepped)
ACTED: Wire[Action] = Wire(Action)
ACTIONS: Wire[list[Action]] = Wire(list[Action])
WORDS: Wire[list[str]] = Wire(list[str])
LOOKED: Wire[Looked] = Wire(Looked)
NOTHING: Wire[None] = Wire(None)
RESTORED: Wire[Restored] = Wire(Restored)
SAVED = BytesWire()


class Answer(NamedTuple, Generic[T]):
    """The result of an environment's call, after serialization and parsing."""

    value: T
    data: bytes  # the serialized form


class GuardedEnvironment:
    """One environment with a check of its contract: every result is validated JSON.

    All methods raise `EnvironmentFault` when the environment breaks the contract. An
    `InputError` of the environment (a missing system part, an undeclared capability)
    concerns the caller and passes unchanged.
    """

    def __init__(self, environment: Environment, label: str) -> None:
        self.environment = environment
        self.label = label  # its name in faults
        self._described: tuple[Tool, ...] = ()
        self._offered: tuple[Tool, ...] = ()
        self._acting: tuple[str, ...] = ()  # the players that act next; empty with a single player

    def describe(self) -> Answer[Description]:
        environment = self.environment

        def read() -> Description:
            self._described = self._offered = tuple(environment.tools)
            return Description(
                environment.instructions,
                self._described,
                environment.spec.capabilities,
                environment.spec.deterministic,
                environment.spec.players,
                environment.spec.stakes,
                environment.spec.token_time,
            )

        return self._call("reset", "description", read, DESCRIPTION)

    def reset(self, task: Task) -> Answer[Started]:
        environment = self.environment

        def reset() -> Started:
            first, signals = environment.reset(task), self._signals()
            self._acting = acting(signals)
            others = [p for p in environment.spec.players if p not in self._acting[:1]]
            first = shown_to_all(environment, first, others if self._acting else ())
            return first, signals, self._tools_unless(self._described)

        return self._call("reset", "reset", reset, STARTED)

    def step(self, action: Action) -> Answer[Stepped]:
        return self._checked("step", self._stepped(action), STEPPED)

    def step_here(self, action: Action) -> Stepped:
        """Take a step; return its result as `step` has it, for a session in this process."""
        transition, signals, tools = result = self._stepped(action)
        if tools is None:
            try:
                received = as_received(transition, signals)
            except ValueError as error:
                raise self._rubbish("step", error) from error
            if received is not None:
                return received, signals, None
        return self._checked("step", result, STEPPED).value

    def oracle(self) -> Answer[list[Action]]:
        return self._call("step", "oracle", lambda: list(self.environment.oracle()), ACTIONS)

    def admissible(self) -> Answer[list[str]]:
        return self._call("step", "admissible", lambda: list(self.environment.admissible()), WORDS)

    def sample(self, seed: int) -> Answer[Action]:
        rng = random.Random(seed)
        return self._call("step", "sample", lambda: sample_action(self.environment, rng), ACTED)

    def look(self) -> Answer[Looked]:
        def look() -> Looked:
            sight = sight_of(self.environment)
            images = () if sight.picture is None else (sight.picture,)
            return Observation("", images), sight.elements

        return self._call("step", "look", look, LOOKED)

    def answer(self) -> Answer[Action]:
        return self._call("step", "answer", lambda: answer_of(self.environment), ACTED)

    def snapshot(self) -> Answer[bytes]:
        return self._call("step", "snapshot", self.environment.snapshot, SAVED)

    def restore(self, snapshot: bytes) -> Answer[Restored]:
        environment = self.environment

        def restore() -> Restored:
            environment.restore(snapshot)
            signals = self._signals()
            self._acting = acting(signals)
            return signals, self._tools_unless(self._described)

        return self._call("step", "restore", restore, RESTORED)

    def close(self) -> None:
        """Close the environment; errors are only logged, because the episode is over."""
        try:
            self.environment.close()
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).warning("%s: close raised %s", self.label, one_line(error))

    def _signals(self) -> Signals:
        """Return the declared signals; numbers that are not finite raise: JSON cannot hold them."""
        signals = signals_of(self.environment)
        progress = signals.progress
        if isinstance(progress, float) and not math.isfinite(progress):
            detail = f"{self.label}: progress is {progress}, but must be a number from 0 to 1"
            raise EnvironmentFault("rubbish", detail)
        if signals.privileged and not all(map(math.isfinite, signals.privileged)):
            detail = f"{self.label}: privileged is {signals.privileged}, but must be finite"
            raise EnvironmentFault("rubbish", detail)
        return signals

    def _tools_unless(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...] | None:
        """Return the available tools; None if they are equal to `tools`."""
        self._offered = tuple(self.environment.tools)
        same = self._offered is tools or self._offered == tools
        return None if same else self._offered

    def _stepped(self, action: Action) -> Stepped:
        """Take a step; return its result before any check."""
        environment = self.environment

        def step() -> Stepped:
            transition, signals = environment.step(action), self._signals()
            before, self._acting = self._acting, acting(signals)
            if before:
                others = _seeing(environment.spec.players, transition, before, self._acting)
                if others:
                    seen = shown_to_all(environment, transition.observation, others)
                    transition = replace(transition, observation=seen)
            return transition, signals, self._tools_unless(self._offered)

        return self._called("step", "step", step)

    def _call(self, kind: str, verb: str, call: Callable[[], T], wire: Wire[T]) -> Answer[T]:
        return self._checked(verb, self._called(kind, verb, call), wire)

    def _called(self, kind: str, verb: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (InputError, EnvironmentFault):
            raise
        except (Exception, SystemExit) as error:
            detail = f"{self.label}: {verb} raised {one_line(error)}"
            raise EnvironmentFault(kind, detail) from error

    def _checked(self, verb: str, result: T, wire: Wire[T]) -> Answer[T]:
        try:
            data = wire.dump(result)
            value = wire.load(data)
        except ValueError as error:
            raise self._rubbish(verb, error) from error
        if len(data) > MAX_BYTES:
            detail = f"{self.label}: {verb} returned {len(data):,} bytes; {MAX_BYTES:,} are allowed"
            raise EnvironmentFault("rubbish", detail)
        return Answer(value, data)

    def _rubbish(self, verb: str, why: ValueError) -> EnvironmentFault:
        detail = f"{self.label}: {verb} returned what the contract does not allow: {why}"
        return EnvironmentFault("rubbish", shortened(detail))


class LocalEnvironment(AsyncEnvironment):
    """An environment in this process: for tests, tiny runs and runs without workers.

    Nothing protects this process from an environment that crashes or hangs.
    """

    def __init__(self, environment: Environment) -> None:
        self._guarded = GuardedEnvironment(environment, type(environment).__name__)
        self._closed = False
        description = self._guarded.describe().value
        self.instructions = description.instructions
        self.tools = self._described = description.tools
        self.capabilities = description.capabilities
        self.deterministic = description.deterministic
        self.players, self.stakes = description.players, description.stakes
        self.token_time = description.token_time

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        first, signals, tools = self._guarded.reset(_copy(TASK, task)).value
        self.tools = self._described if tools is None else tools
        return first, signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        transition, signals, tools = self._guarded.step_here(_sent(action))
        self.tools = self.tools if tools is None else tools
        return transition, signals

    async def oracle(self) -> list[Action]:
        return self._guarded.oracle().value

    async def admissible(self) -> list[str]:
        return self._guarded.admissible().value

    async def sample(self, seed: int) -> Action:
        return self._guarded.sample(seed).value

    async def look(self) -> Sight:
        return sight(self._guarded.look().value)

    async def answer(self) -> Action:
        return self._guarded.answer().value

    async def snapshot(self) -> bytes:
        return self._guarded.snapshot().value

    async def restore(self, snapshot: bytes) -> Signals:
        signals, tools = self._guarded.restore(snapshot).value
        self.tools = self._described if tools is None else tools
        return signals

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._guarded.close()


def sight(looked: Looked) -> Sight:
    """Return the views of a state as `look` gives them."""
    observation, elements = looked
    return Sight(next(iter(observation.images), None), elements)


def acting(signals: Signals) -> tuple[str, ...]:
    """Return the players that act next; empty with a single player, and at the end."""
    return () if signals.turn is None else (signals.turn, *signals.together)


def shown_to_all(
    environment: Environment, observation: Observation, others: Sequence[str]
) -> Observation:
    """Return the observation with what other players see now."""
    if not others:
        return observation
    seen = {player: observed_by(environment, player).text for player in others}
    return replace(observation, others=seen)


def _seeing(
    players: Sequence[str], transition: Transition, before: Sequence[str], after: Sequence[str]
) -> Sequence[str]:
    """Return who sees something new after a step, besides the one whose observation it has.

    At the end these are all others, and in a new round its other players. Within a round, in which
    moves are pending or a player acts without a move, nobody does.
    """
    if transition.terminated or transition.truncated:
        return [player for player in players if player != before[0]]
    if not transition.valid or after in (before, before[1:]):
        return ()
    return after[1:]


def one_line(error: BaseException) -> str:
    """Return a description of an exception: its type, its message and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return shortened(f"{type(error).__name__}: {error}") + location


def shortened(text: str, length: int = 2000) -> str:
    """Return at most `length` characters of a text."""
    return text if len(text) <= length else text[: length - 2] + " …"


def _sent(action: Action) -> Action:
    """Return an action as a worker would receive it; raises if its text cannot be encoded."""
    if action.call is None:
        action.text.encode()
        return action
    return _copy(ACTION, action)


def _copy(shape: TypeAdapter[T], value: Any) -> T:
    """Return a value as a worker would receive it: serialized to JSON and parsed."""
    return shape.validate_json(shape.dump_json(value, warnings="error"), strict=True)
