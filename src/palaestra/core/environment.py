"""The environment contract: a resettable, stateful, verifiable world.

An author subclasses `Environment` and writes `reset`, `step` and `close` in plain
Python: no reward shaping, no tokens, no asyncio. What else the world can do is
*declared* in `capabilities`; asking for anything undeclared is an error, and the
conformance kit tests each declared capability.

Gymnasium's conventions hold: `terminated` (the task ended) is not `truncated` (a
limit cut it), seeds are explicit (they are the task's), and `info` carries
nothing that the agent must not see.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NoReturn

from palaestra.core.errors import CapabilityMissing, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool, random_call


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent does: words, or a tool call, or both."""

    text: str
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees."""

    text: str
    image: str = ""  # a PNG in base64, where the knob `observation=image` asks for it

    @property
    def images(self) -> tuple[str, ...]:
        return (self.image,) if self.image else ()


@dataclass(frozen=True, slots=True)
class Transition:
    """What one action led to."""

    observation: Observation
    reward: float = 0.0  # the environment's own reward, unshaped
    terminated: bool = False  # the task ended, solved or not
    truncated: bool = False  # the environment's own step limit was reached
    success: bool = False  # the task is solved; implies terminated
    valid: bool = True  # false: the action was not understood, and changed nothing
    info: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=dict)  # of each of several players


@dataclass(frozen=True, slots=True)
class Signals:
    """What the optional capabilities say about the present state; None where undeclared."""

    state_key: str | None = None  # equal keys, equal states
    progress: float | None = None  # share of the task done, in [0, 1]
    turn: str | None = None  # who acts next; None where there is one player


class Capability(StrEnum):
    STATE_KEY = "state_key"  # a hashable key of the state before the action
    SNAPSHOT = "snapshot"  # the state can be saved and restored
    PROGRESS = "progress"  # how much of the task is done, in [0, 1]
    ORACLE = "oracle"  # a reference solution from the present state
    ADMISSIBLE = "admissible"  # the actions that make sense now
    PICTURE = "picture"  # what the agent sees now, as a picture


class Environment(ABC):
    """A world. Subclass it, set the class fields, write `reset` and `step`."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    deterministic: ClassVar[bool] = True
    """Equal tasks and equal actions give equal episodes, so a lost world can be replayed."""

    version: ClassVar[str] = "1"
    """A whole number that rises when equal tasks and actions begin to give other episodes, so that
    older results no longer compare; an id may ask for it: `family/name@1`."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Programs outside Python that this world needs on the PATH, e.g. ("java",)."""

    free_text: ClassVar[bool] = False
    """Any words are an action here, as in a conversation or an answer: nothing is garbage."""

    tools: tuple[Tool, ...] = ()
    """Tools that this world offers; empty where actions are words. Where they change with the task
    or within an episode, assign a new tuple; before the first reset, all that there may be."""

    players: tuple[str, ...] = ("agent",)
    """Who acts here. With several, an observation is for whoever acts next, and `reward` is of
    the one who has just acted; `rewards` has those of all, and `success` is the first one's or
    everybody's, never that of whoever happened to move last."""

    context: Mapping[str, float] = {}
    """Numbers of this world that `set_context` can change, such as its gravity, and what they are
    where nobody does (contextual RL, Benjamins et al. 2023)."""

    def __init__(self, name: str = "") -> None:
        """A world of that name within its family; the task comes with `reset`."""
        self.check_name(name)
        self.name = name

    @classmethod
    def names(cls) -> list[str]:
        """The names within the family; empty where the family has a single world."""
        return []

    @classmethod
    def check_name(cls, name: str) -> None:
        """Raise UnknownName unless this family has a world of that name."""
        known = cls.names()
        if known and name not in known:
            raise UnknownName(f"{cls.__name__} environment", name, known)

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        """What the world of that name declares, without making it."""
        return cls.capabilities

    @classmethod
    def players_of(cls, name: str) -> tuple[str, ...]:
        """Who acts in the world of that name, without making it."""
        return cls.players

    @property
    @abstractmethod
    def instructions(self) -> str:
        """What the world is and how to act in it: the system message of most agents."""

    @property
    def typical_turns(self) -> int:
        """A fair number of actions for one episode: ample for an expert, tight for chance."""
        return 20

    @classmethod
    @abstractmethod
    def tasks(cls, environment: str) -> TaskSet:
        """The tasks of the environment with that full id."""

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start `task` from any state. Equal tasks give equal worlds."""

    @abstractmethod
    def step(self, action: Action) -> Transition:
        """Act. Anything that cannot be understood is answered in words, with `valid=False`."""

    def close(self) -> None:
        """Free what the world holds; it is not used afterwards."""

    def set_context(self, values: Mapping[str, float]) -> None:
        """Change these numbers of `context` from the next reset on; all others are the usual ones.

        Raises:
            UnknownName: `context` has no such name.
        """
        for name in values:
            raise UnknownName("context", name, self.context)

    def state_key(self) -> str:
        self._undeclared(Capability.STATE_KEY)

    def snapshot(self) -> bytes:
        self._undeclared(Capability.SNAPSHOT)

    def restore(self, snapshot: bytes) -> None:
        self._undeclared(Capability.SNAPSHOT)

    def progress(self) -> float:
        self._undeclared(Capability.PROGRESS)

    def oracle(self) -> Sequence[Action]:
        """Reference actions that solve the task from the present state."""
        self._undeclared(Capability.ORACLE)

    def admissible(self) -> Sequence[str]:
        self._undeclared(Capability.ADMISSIBLE)

    def picture(self) -> bytes:
        """What the agent sees now, as a PNG; equal states, equal pictures."""
        self._undeclared(Capability.PICTURE)

    def turn_of(self) -> str:
        """The player who acts next."""
        return self.players[0]

    @property
    def names_actions(self) -> bool:
        """Whether `sample_action` has anything to draw from."""
        own = type(self).sample_action is not Environment.sample_action
        named = Capability.ADMISSIBLE in self.capabilities or bool(self.tools)
        return own or named or bool(stated_actions(self.instructions))

    def sample_action(self, dice: random.Random) -> Action:
        """An action that is understood here, drawn by chance: what a random agent does.

        By default one of the admissible ones, else a call of a tool with arguments that fit its
        schema, else a word that the instructions list. A world with none of them overrides this.

        Raises:
            CapabilityMissing: there is nothing to draw from.
        """
        if Capability.ADMISSIBLE in self.capabilities and (words := self.admissible()):
            return Action(dice.choice(list(words)))
        if self.tools:
            call = random_call(self.tools, dice)
            return Action(str(call), call)
        if stated := stated_actions(self.instructions):
            return Action(dice.choice(stated))
        self._undeclared(Capability.ADMISSIBLE)

    def signals(self) -> Signals:
        """The declared signals of the present state, in one go."""
        has = self.capabilities
        return Signals(
            state_key=self.state_key() if Capability.STATE_KEY in has else None,
            progress=self.progress() if Capability.PROGRESS in has else None,
            turn=self.turn_of() if len(self.players) > 1 else None,
        )

    def _undeclared(self, capability: Capability) -> NoReturn:
        raise CapabilityMissing(
            f"{type(self).__name__} does not declare '{capability}'; "
            f"it has: {', '.join(sorted(self.capabilities)) or 'none'}."
        )


def stated_actions(instructions: str) -> list[str]:
    """The words of the last list "…: a, b, c." in the instructions; empty without one."""
    lists = [found for found in re.findall(r":\s+([^:.\n]+)", instructions) if "," in found]
    if not lists:
        return []
    words = (re.sub(r"^(and|or)\s+", "", part.strip()) for part in lists[-1].split(","))
    return [word for word in words if word]


class World(ABC):
    """An environment as a session sees it: asynchronous, wherever it really runs.

    Implementations live in `rollout` (in this process, or in a worker process).
    Every method raises `EnvironmentFault` when the world crashes, hangs or
    returns rubbish, and `InfrastructureFault` when somebody else ended its process.
    """

    instructions: str
    tools: tuple[Tool, ...]  # on offer now; each reset and each step may change them
    capabilities: frozenset[Capability]
    deterministic: bool = True  # a reset and the same actions lead to the same state
    players: tuple[str, ...] = ("agent",)

    @abstractmethod
    async def reset(self, task: Task) -> tuple[Observation, Signals]: ...

    @abstractmethod
    async def step(self, action: Action) -> tuple[Transition, Signals]: ...

    @abstractmethod
    async def oracle(self) -> list[Action]: ...

    @abstractmethod
    async def admissible(self) -> list[str]: ...

    async def sample(self, seed: int) -> Action:
        """An action drawn by chance, where the world draws any (`Environment.sample_action`)."""
        raise CapabilityMissing("This world draws no actions; choose another model than chance.")

    async def snapshot(self) -> bytes:
        """The present state, where the world declares snapshots (`Environment.snapshot`)."""
        raise CapabilityMissing("This world saves no state; choose one that declares 'snapshot'.")

    async def restore(self, snapshot: bytes) -> Signals:
        """Put a saved state back, after any reset; returns its signals."""
        raise CapabilityMissing("This world saves no state; choose one that declares 'snapshot'.")

    @abstractmethod
    async def close(self) -> None: ...
