"""The conformance kit finds what it looks for: each broken world fails its clause."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.task import Split, Task, TaskSet
from tests.environments import conformance
from tests.environments.conformance import CLAUSES, Subject

GOAL = 6


class Line(Environment):
    """Healthy: walk from a place that the seed decides to place six; ten steps at most."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.PROGRESS, Capability.ORACLE}
    )
    instructions = "Say on or back."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.start = self.place = self.made = 0

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.start = self.place = task.seed % 4
        self.made = 0
        return Observation(f"place {self.place}")

    def step(self, action: Action) -> Transition:
        if action.text not in ("on", "back"):
            return Transition(Observation("Say on or back."), valid=False)
        self.place += 1 if action.text == "on" else -1
        self.made += 1
        done = self.place == GOAL
        return Transition(
            Observation(f"place {self.place}"),
            terminated=done,
            truncated=self.made == 10 and not done,
            success=done,
        )

    def state_key(self) -> str:
        return f"{self.start} {self.place}"

    def snapshot(self) -> bytes:
        return f"{self.start} {self.place} {self.made}".encode()

    def restore(self, snapshot: bytes) -> None:
        self.start, self.place, self.made = map(int, snapshot.split())

    def progress(self) -> float:
        return min(1.0, max(0.0, (self.place - self.start) / (GOAL - self.start)))

    def oracle(self) -> list[Action]:
        return [Action("on")] * (GOAL - self.place)


class Chance(Line):
    def reset(self, task: Task) -> Observation:
        return super().reset(replace(task, seed=random.randrange(10**6)))


class Forgetful(Line):
    def restore(self, snapshot: bytes) -> None:
        self.start, self.place, _ = map(int, snapshot.split())


class Leftover(Line):
    def reset(self, task: Task) -> Observation:
        made = self.made
        seen = super().reset(task)
        self.made = made % 10
        return seen


class Constant(Line):
    def state_key(self) -> str:
        return "here"


class Lost(Line):
    def oracle(self) -> list[Action]:
        return [Action("back")]


class Eager(Line):
    def progress(self) -> float:
        return min(1.0, super().progress() * 2)


class Double(Line):
    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        return replace(transition, truncated=transition.terminated or transition.truncated)


class Touchy(Line):
    def step(self, action: Action) -> Transition:
        if action.text == "":
            raise ValueError("empty")
        return super().step(action)


class Credulous(Line):
    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        self.place += not transition.valid
        return transition


class Shared(Line):
    places: ClassVar[list[int]] = [0]

    def reset(self, task: Task) -> Observation:
        seen = super().reset(task)
        self.places[0] = self.place
        return seen

    def step(self, action: Action) -> Transition:
        self.place = self.places[0]
        transition = super().step(action)
        self.places[0] = self.place
        return transition


class Boastful(Line):
    def admissible(self) -> list[str]:
        return ["on", "back"]


class Overlapping(TaskSet):
    def task(self, split: Split, index: int) -> Task:
        return replace(super().task(split, index), seed=index)


def subject(world: type[Environment]) -> Subject:
    return Subject(world, TaskSet("line"), ("on", "on", "back"))


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_healthy_world_passes(clause: Callable[[Subject], None]) -> None:
    clause(subject(Line))


@pytest.mark.parametrize(
    ("world", "clause"),
    [
        (Chance, conformance.equal_tasks_give_equal_worlds),
        (Leftover, conformance.a_reset_works_after_any_state),
        (Forgetful, conformance.restoring_equals_replaying),
        (Chance, conformance.equal_histories_have_equal_keys_and_equal_keys_equal_futures),
        (Constant, conformance.keys_differ_where_progress_does),
        (Lost, conformance.the_oracle_solves),
        (Eager, conformance.progress_rises_to_one_exactly_at_success),
        (Double, conformance.an_end_is_of_one_kind),
        (Touchy, conformance.garbage_is_answered_in_words_and_changes_nothing),
        (Credulous, conformance.garbage_is_answered_in_words_and_changes_nothing),
        (Shared, conformance.two_worlds_share_no_state),
    ],
)
def test_a_broken_world_fails(world: type[Environment], clause: Callable[[Subject], None]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        clause(subject(world))


def test_splits_that_share_seeds_fail() -> None:
    with pytest.raises(AssertionError):
        conformance.splits_share_no_seed(replace(subject(Line), tasks=Overlapping("line")))


def test_an_ability_that_is_not_declared_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        conformance.what_is_not_declared_is_refused(subject(Boastful))
