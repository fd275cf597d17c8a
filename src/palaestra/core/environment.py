"""The environment contract: a resettable, stateful, verifiable world.

An author subclasses `Environment` and writes `reset`, `step` and `close` in plain
Python: no reward shaping, no tokens, no asyncio. All other capabilities are *declared*
in its `Spec`, which the class returns for each of its names before anything is
made. Using an undeclared capability is an error, and the conformance kit tests each
declared one.

Gymnasium's conventions hold: `terminated` (the task ended) is not `truncated` (a
limit cut it), seeds are explicit (they are the task's), and `info` carries
nothing that the agent must not see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, NoReturn, TypedDict, Unpack

from palaestra.core.budget import Budget
from palaestra.core.element import Element
from palaestra.core.errors import CapabilityMissing, UnknownName
from palaestra.core.message import Image, ToolCall
from palaestra.core.quick_init import quick_init
from palaestra.core.task import Task, TaskSet
from palaestra.core.team_words import PASS
from palaestra.core.tool import Tool


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent does: text, a tool call, or both."""

    text: str
    call: ToolCall | None = None
    spent: int = 0
    """The tokens that models have sampled since the last valid action, where the environment asks
    for them (`Spec.token_time`); else 0."""

    @classmethod
    def of(cls, action: str | Action | ToolCall) -> Action:
        """Return text or a call as an action; return an action unchanged."""
        if isinstance(action, ToolCall):
            return cls(str(action), action)
        return cls(action) if isinstance(action, str) else action


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees."""

    text: str
    images: tuple[Image, ...] = ()  # one where the knob `observation` asks for it
    others: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What other players see: those that act at the same time, and at the beginning and the end of
    an episode all others."""


@quick_init
@dataclass(frozen=True, slots=True)
class Transition:
    """The result of one action."""

    observation: Observation
    reward: float = 0.0  # the environment's own reward, unshaped
    terminated: bool = False  # the task ended, solved or not
    truncated: bool = False  # the environment's own step limit was reached
    success: bool = False  # the task is solved; implies terminated
    valid: bool = True  # false: the action was invalid and changed nothing
    info: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=dict)  # of each of several players


@quick_init
@dataclass(frozen=True, slots=True)
class Signals:
    """The values of the optional capabilities in the present state; None where undeclared."""

    state_key: str | None = None  # equal keys, equal states
    progress: float | None = None  # share of the task done, in [0, 1]
    turn: str | None = None  # who acts next; None where there is one player
    together: tuple[str, ...] = ()  # who else acts in this round, at the same time as `turn`
    privileged: tuple[float, ...] = ()  # numbers of the hidden state, see `Spec.privileged`


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to see in the present state, whatever the observations of an agent hold."""

    picture: Image | None = None  # None: no picture is declared
    elements: tuple[Element, ...] = ()  # empty where none are declared


class Capability(StrEnum):
    """An optional capability that an environment may declare."""

    STATE_KEY = "state_key"  # a hashable key of the state before the action
    SNAPSHOT = "snapshot"  # the state can be saved and restored
    PROGRESS = "progress"  # how much of the task is done, in [0, 1]
    ORACLE = "oracle"  # a reference solution from the present state
    ADMISSIBLE = "admissible"  # the actions that make sense now
    PICTURE = "picture"  # what the agent sees now, as an image
    ELEMENTS = "elements"  # what the agent sees now, as elements; its actions are gestures
    ANSWER = "answer"  # the right answer is known: the one action that solves the task


@dataclass(frozen=True, slots=True)
class Stakes:
    """What several players of an environment may win, and what a player who drops out gets."""

    returns: Literal["general", "zero-sum", "common"] = "general"
    """Whether the players' returns of an episode sum to 0, are equal, or neither."""

    forfeit: float = -1.0
    """The return of a player who forfeits: who is not understood, out of budget or crashed."""

    idle: str | None = None
    """The action that does nothing, with which the others play on after a forfeit. Without one a
    forfeit ends the episode: the others share what the player lost where returns sum to 0, get the
    same where they are equal, and keep what they have where they are neither."""

    teams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The players that are a team, by the player in whose place they act. They have one return,
    which counts once where returns sum to 0, and one that forfeits passes: its team goes on."""

    limits: Mapping[str, Budget] = field(default_factory=dict)
    """Limits of single players, besides those that a run sets for each."""

    team_limits: Mapping[str, Budget] = field(default_factory=dict)
    """Limits of teams as a whole, by the player in whose place they act: `turns` counts the replies
    of all members, `tokens` those that they sample. Beyond them each member forfeits."""

    def sides(self, players: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the players in groups that have one return: teams, and each other player."""
        team_of = {member: team for team in self.teams.values() for member in team}
        return list(dict.fromkeys(team_of.get(player, (player,)) for player in players))

    def idle_of(self, player: str) -> str | None:
        """Return the action that does nothing of a player; None: a forfeit ends the episode."""
        return PASS if any(player in team for team in self.teams.values()) else self.idle

    def after_forfeit(self, loser: str, so_far: Mapping[str, float]) -> dict[str, float]:
        """Return all returns of an episode that a forfeit ends; see `idle`.

        Args:
            loser: the player who forfeits, with its team.
            so_far: the return of each player until then.
        """
        if self.returns == "common":
            return dict.fromkeys(so_far, self.forfeit)
        sides, left = self.sides(so_far), dict(so_far)
        if self.returns == "zero-sum":
            left = dict.fromkeys(so_far, -self.forfeit / (len(sides) - 1))
        (lost,) = (side for side in sides if loser in side)
        return left | dict.fromkeys(lost, self.forfeit)


@dataclass(frozen=True, slots=True)
class Spec:
    """The facts about an environment that are known before it is made, for checking recipes."""

    id: str  # the family and the name: "babyai/GoToLocalS5N2", or "module:Class"
    version: str = "1"
    """An integer that increases when equal tasks and actions start to give other episodes, so that
    older results no longer compare. An id may require one: `family/name@1`."""

    capabilities: frozenset[Capability] = frozenset()
    players: tuple[str, ...] = ("agent",)
    """The players that act. With several, an observation is for the player that acts next, and
    `reward` belongs to the player that has just acted. `rewards` has the rewards of all players.
    `success` is that of the first player or of all players, never of the last player to move."""

    stakes: Stakes = Stakes()  # of several players

    deterministic: bool = True  # equal tasks and equal actions give equal episodes
    free_text: bool = False  # any text is an action, as in a conversation or an answer
    tools: bool = False  # actions are calls of tools, or may be
    images: bool = False  # observations contain images, so agents and models must take them
    token_time: bool = False  # sampled tokens take time in it, so that it reads `Action.spent`
    waits: bool = False
    """Whether its calls mostly wait for another process, such as a browser. Then its worker makes
    calls of several such environments at once, each environment's in a thread of its own, so what
    environments of the class share must be safe for threads. Their waiting does not count as slow.
    """

    virtual_time: bool = False
    """Whether time in it stands still between actions, and the knob `clock=real` lets it pass."""

    typical_turns: int = 20  # of one episode: ample for an expert, tight for random actions
    needs: tuple[str, ...] = ()  # programs outside Python that must be on the PATH, e.g. ("java",)
    context: Mapping[str, float] = field(default_factory=dict)
    """Numbers that `Contextual.set_context` can change, such as gravity, and their usual values
    (contextual RL, Benjamins et al. 2023)."""

    privileged: tuple[str, ...] = ()
    """Names of numbers of the hidden state, which training may predict from what the agent saw
    (`Privileged.privileged_state`). They are recorded, and shown to no agent."""

    @property
    def name(self) -> str:
        """The name within the family; empty where the family has a single environment."""
        return self.id.partition("/")[2]

    def named(self, name: str) -> Spec:
        """Return the same facts for the environment of that name in the family."""
        family = self.id.partition("/")[0]
        return replace(self, id=f"{family}/{name}" if name else family)


class Declared(TypedDict, total=False):
    """The facts that a class declares as keywords after its bases; see `Spec`."""

    id: str  # the family's name
    version: str
    capabilities: Iterable[Capability | str]  # besides those of the bases
    players: tuple[str, ...]
    stakes: Stakes
    deterministic: bool
    free_text: bool
    tools: bool
    token_time: bool
    waits: bool
    virtual_time: bool
    typical_turns: int
    needs: tuple[str, ...]
    privileged: tuple[str, ...]


class Environment(ABC):
    """The base class of environments: write `reset` and `step`; declare the rest as keywords.

        class Guess(Environment, capabilities={"oracle"}, typical_turns=5): ...

    Keywords are inherited. Where a fact depends on the name within a family, override `spec_of`.
    """

    _declared: ClassVar[Spec] = Spec("")

    spec: Spec
    """The result of `spec_of` for this environment's name."""

    tools: tuple[Tool, ...] = ()
    """The tools of this environment; empty where actions are text. If they change with the task or
    within an episode, assign a new tuple. Before the first reset, it holds all possible tools."""

    def __init_subclass__(cls, **keywords: Unpack[Declared]) -> None:
        super().__init_subclass__()
        for fact in (Declared.__annotations__.keys() - {"id", "tools"}) & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}.{fact} has no effect as a class variable; declare it after the "
                f"bases: class {cls.__name__}(…, {fact}=…)."
            )
        capabilities = frozenset(map(Capability, keywords.pop("capabilities", ())))
        for base in cls.__bases__:
            if issubclass(base, Environment):
                capabilities |= base._declared.capabilities
        facts: dict[str, Any] = {"id": f"{cls.__module__}:{cls.__qualname__}", **keywords}
        if "tools" not in keywords and isinstance(cls.tools, tuple):
            facts["tools"] = cls._declared.tools or bool(cls.tools)
        cls._declared = replace(cls._declared, capabilities=capabilities, **facts)

    def __init__(self, name: str = "") -> None:
        """Make the environment of that name within its family; `reset` receives the task."""
        self.spec = self.spec_of(name)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the facts about the environment of that name, without making it.

        Raises:
            UnknownName: this family has no environment of that name.
        """
        known = cls.names()
        if known and name not in known:
            raise UnknownName(f"{cls.__name__} environment", name, known)
        return declared(cls).named(name)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names within the family; empty where it has a single environment."""
        return []

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """Return the tasks of the environment with that full id; by default one per seed."""
        return TaskSet(environment)

    @property
    @abstractmethod
    def instructions(self) -> str:
        """The rules of the environment and how to act in it: the system message of most agents."""

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start `task` from any state. Equal tasks give equal initial states."""

    @abstractmethod
    def step(self, action: Action) -> Transition:
        """Take one action. An invalid one returns an explanation as text, with `valid=False`."""

    def close(self) -> None:
        """Free all resources; the environment is not used afterwards."""

    def state_key(self) -> str:
        self._undeclared(Capability.STATE_KEY)

    def snapshot(self) -> bytes:
        self._undeclared(Capability.SNAPSHOT)

    def restore(self, snapshot: bytes) -> None:
        self._undeclared(Capability.SNAPSHOT)

    def progress(self) -> float:
        self._undeclared(Capability.PROGRESS)

    def oracle(self) -> Sequence[Action]:
        """Return reference actions that solve the task from the present state."""
        self._undeclared(Capability.ORACLE)

    def admissible(self) -> Sequence[str]:
        self._undeclared(Capability.ADMISSIBLE)

    def _undeclared(self, capability: Capability) -> NoReturn:
        raise CapabilityMissing(
            f"{type(self).__name__} does not declare '{capability}'; "
            f"it has: {', '.join(sorted(self.spec.capabilities)) or 'none'}."
        )


def declared(cls: type[Environment]) -> Spec:
    """Return the facts that a class declares for all its names."""
    return cls._declared


class AsyncEnvironment(ABC):
    """An environment as a session uses it: asynchronous, in this process or in another.

    The implementations are in `rollout` (in this process, or in a worker process).
    Every method raises `EnvironmentFault` if the environment crashes, hangs or
    returns malformed data, and `InfrastructureFault` if its process was ended from outside.
    """

    instructions: str
    tools: tuple[Tool, ...]  # available now; each reset and each step may change them
    capabilities: frozenset[Capability]
    deterministic: bool = True  # a reset and the same actions lead to the same state
    players: tuple[str, ...] = ("agent",)
    stakes: Stakes = Stakes()
    token_time: bool = False  # see `Spec.token_time`

    @abstractmethod
    async def reset(self, task: Task) -> tuple[Observation, Signals]: ...

    @abstractmethod
    async def step(self, action: Action) -> tuple[Transition, Signals]: ...

    @abstractmethod
    async def oracle(self) -> list[Action]: ...

    @abstractmethod
    async def admissible(self) -> list[str]: ...

    async def sample(self, seed: int) -> Action:
        """Return a random action, where the environment can sample one (`sample_action`)."""
        raise CapabilityMissing(
            "This environment samples no actions; choose another model than chance."
        )

    async def answer(self) -> Action:
        """Return the right answer of the task, where it is known (`Answered.answer`)."""
        raise CapabilityMissing(
            "This environment knows no answer; choose one that declares 'answer'."
        )

    async def look(self) -> Sight:
        """Return the declared views of the present state, at any time and in trials."""
        raise CapabilityMissing(
            "This environment shows no picture and no elements; choose one that declares one."
        )

    async def snapshot(self) -> bytes:
        """Return the present state, where snapshots are declared (`Environment.snapshot`)."""
        raise CapabilityMissing(
            "This environment saves no state; choose one that declares 'snapshot'."
        )

    async def restore(self, snapshot: bytes) -> Signals:
        """Restore a saved state, after any reset, and return its signals."""
        raise CapabilityMissing(
            "This environment saves no state; choose one that declares 'snapshot'."
        )

    @abstractmethod
    async def close(self) -> None: ...
