"""The conformance kit detects violations: each broken environment fails its clause."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import pytest

from palaestra.cli.main import main
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Split, Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.environments.conformance import clauses, deep_clauses
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Broken, Subject
from palaestra.environments.snapshots import opened, sealed

GOAL = 6


class Line(Environment, capabilities={"state_key", "snapshot", "progress", "oracle"}):
    """A valid environment: walk from a seeded start to place six in at most ten steps."""

    instructions = "Say on or back."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.start = self.place = self.made = 0
        self.over = False

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.start = self.place = task.seed % 4
        self.made, self.over = 0, False
        return Observation(f"place {self.place}")

    def step(self, action: Action) -> Transition:
        if action.text not in ("on", "back") or self.over:
            return Transition(Observation("Say on or back."), valid=False)
        self.place += 1 if action.text == "on" else -1
        self.made += 1
        done = self.place == GOAL
        self.over = done or self.made == 10
        return Transition(
            Observation(f"place {self.place}"),
            terminated=done,
            truncated=self.made == 10 and not done,
            success=done,
        )

    def state_key(self) -> str:
        return f"{self.start} {self.place}"

    def snapshot(self) -> bytes:
        return sealed("line", "1", f"{self.start} {self.place} {self.made}".encode())

    def restore(self, snapshot: bytes) -> None:
        self.start, self.place, self.made = map(int, opened(snapshot, "line", "1").split())
        self.over = False

    def progress(self) -> float:
        return min(1.0, max(0.0, (self.place - self.start) / (GOAL - self.start)))

    def oracle(self) -> list[Action]:
        return [Action("on")] * (GOAL - self.place)

    def sample_action(self, rng: random.Random) -> Action:
        return Action(rng.choice(("on", "on", "back")))


class Chance(Line):
    def reset(self, task: Task) -> Observation:
        return super().reset(replace(task, seed=random.randrange(10**6)))


class Forgetful(Line):
    def restore(self, snapshot: bytes) -> None:
        self.start, self.place, _ = map(int, opened(snapshot, "line", "1").split())
        self.over = False


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


class Wavering(Line):
    def oracle(self) -> list[Action]:
        return [Action("back"), Action("on")] * (self.made % 2) + super().oracle()


class Guessing(Line, capabilities={"answer"}):
    def answer(self) -> Action:
        return Action("back")  # which leads nowhere


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


class Slipping(Line):
    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        self.place += "\\" in action.text
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


class Trusting(Line):
    def restore(self, snapshot: bytes) -> None:
        self.place = len(snapshot)


class Endless(Line):
    def step(self, action: Action) -> Transition:
        self.over = False
        return super().step(action)


class Rendering(Line):
    def step(self, action: Action) -> Transition:
        return replace(super().step(action), info={"gold_actions": ["on"]})


class Numeric(Line):
    def step(self, action: Action) -> Transition:
        return replace(super().step(action), reward=cast(float, "much"))


class Mistyped(Line):
    tools = (Tool("walk", "Walk.", {"type": "object", "properties": {}, "required": ["far"]}),)


class Parent(Line):
    def reset(self, task: Task) -> Observation:
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        return super().reset(task)


class Overlapping(TaskSet):
    def task(self, split: Split, index: int) -> Task:
        return replace(super().task(split, index), seed=index)


def subject(world: type[Environment]) -> Subject:
    return Subject(world, TaskSet("line"))


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_healthy_world_passes(clause: Callable[[Subject], None]) -> None:
    clause(subject(Line))


@pytest.mark.parametrize(
    ("world", "clause"),
    [
        (Chance, clauses.equal_tasks_give_equal_worlds),
        (Leftover, clauses.a_reset_works_after_any_state),
        (Forgetful, clauses.restoring_equals_replaying),
        (Chance, clauses.equal_keys_have_equal_futures),
        (Constant, clauses.keys_differ_where_progress_does),
        (Lost, clauses.the_oracle_solves),
        (Wavering, clauses.the_oracle_leads_on),
        (Guessing, clauses.the_known_answer_solves),
        (Eager, clauses.progress_rises_to_one_exactly_at_success),
        (Double, clauses.an_end_is_of_one_kind),
        (Touchy, clauses.garbage_is_answered_in_words),
        (Credulous, clauses.garbage_is_answered_in_words),
        (Shared, clauses.two_worlds_share_no_state),
        (Trusting, clauses.foreign_snapshots_are_refused),
        (Endless, clauses.what_comes_after_the_end_is_refused),
        (Rendering, clauses.everything_serialises_and_leaks_nothing),
        (Numeric, clauses.everything_serialises_and_leaks_nothing),
        (Mistyped, clauses.tools_are_as_described),
        (Parent, clauses.a_closed_world_leaves_nothing),
    ],
)
def test_a_broken_world_fails(world: type[Environment], clause: Callable[[Subject], None]) -> None:
    with pytest.raises(Broken):
        clause(subject(world))


def test_one_odd_character_in_an_action_changes_nothing_unsaid() -> None:
    deep_clauses.slips_are_answered_in_words(subject(Line))
    with pytest.raises(Broken, match="was invalid, but changed it"):
        deep_clauses.slips_are_answered_in_words(subject(Slipping))


def test_splits_that_share_seeds_fail() -> None:
    with pytest.raises(Broken, match="which belongs to"):
        clauses.splits_share_no_task(replace(subject(Line), tasks=Overlapping("line")))


def test_an_ability_that_is_not_declared_fails() -> None:
    with pytest.raises(Broken, match="not declared, but it is implemented"):
        clauses.what_is_not_declared_is_refused(subject(Boastful))


def test_the_smallest_trace_is_shown() -> None:
    finding = check_clause(subject(Credulous), clauses.garbage_is_answered_in_words)
    assert "changed the state" in finding.broken
    assert [h.did for h in finding.trace] == ["reset to train/0 (seed 0)", "step ''"]


def test_a_crash_is_reported_with_its_position() -> None:
    finding = check_clause(subject(Touchy), clauses.garbage_is_answered_in_words)
    assert finding.broken == "'' raised ValueError: empty"


def test_the_command_checks_a_world_and_names_what_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-env", "probe/sea-3"]) == 0
    assert f"keeps all {len(CLAUSES)} clauses" in capsys.readouterr().out
    assert main(["check-env", "tests.environments.conformance.test_conformance:Constant"]) == 1
    output = capsys.readouterr().out
    assert "BROKEN keys differ where progress does" in output and "reset to" in output
    assert main(["check-env", "probe/see-3"]) == 2
    assert "Did you mean 'sea-3'?" in capsys.readouterr().err


def test_the_pytest_plug_in_adds_a_test_per_clause(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--check-env"]
    done = subprocess.run(
        [*command, "probe/sea-3"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(CLAUSES)} passed" in done.stdout
    wrong = subprocess.run(
        [*command, "probe/nowhere"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 4 and "There is no Probe environment" in wrong.stderr
