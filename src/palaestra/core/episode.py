"""The record of one episode: model calls, environment steps, outcome, cost.

An episode is data. It can be stored, shown, credited, trained on and replayed
without the world or the model that produced it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task


@dataclass(frozen=True, slots=True)
class Step:
    """One action in the environment."""

    index: int
    call: int | None  # the model call whose reply proposed the action; None if none did
    action: Action
    transition: Transition
    before: Signals  # of the state in which the action was taken
    seconds: float = 0.0
    calls_made: int | None = None
    """How many model calls were made before it. None in records that do not tell it, older ones and
    those of other programs: there `call` is the latest call before it, whoever proposed it."""

    @property
    def calls_before(self) -> int:
        """How many model calls were made before it."""
        if self.calls_made is not None:
            return self.calls_made
        return 0 if self.call is None else self.call + 1


@dataclass(frozen=True, slots=True)
class Key:
    """Which rollout of which task this is: unique within a run, and stable across resumes."""

    phase: str  # e.g. "rl/12" or "test/final"
    group: int  # position of the task in the phase's list of tasks
    member: int = 0  # which rollout of that task

    def __str__(self) -> str:
        return f"{self.phase}/{self.group}.{self.member}"


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode."""

    key: Key
    task: Task
    agent: str
    observation: Observation | None  # the first one; None if the reset failed
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    outcome: Outcome
    usage: Usage
    progress: float | None = None  # at the end, where the environment declares it
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> MessageGraph:
        return MessageGraph(self.calls)

    @property
    def reward(self) -> float:
        """Sum of the environment's own rewards; meaningless where the outcome is not scored."""
        return sum(step.transition.reward for step in self.steps)

    @property
    def results(self) -> dict[str, float]:
        """Sum of the rewards of each of several players, the first one first; else empty."""
        found: dict[str, float] = {}
        for step in self.steps:
            for player, reward in step.transition.rewards.items():
                found[player] = found.get(player, 0.0) + reward
        for step in self.steps:  # who moved before anybody was given anything
            if step.before.turn is not None:
                found.setdefault(step.before.turn, 0.0)
        return found

    @property
    def invalid_turns(self) -> int:
        return sum(not step.transition.valid for step in self.steps)
