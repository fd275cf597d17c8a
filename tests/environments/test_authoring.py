"""Environments written as classes with tools: schemas, calls, snapshots, authors' mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.authoring import Refused, ToolWorld, tool
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject

TASK = TaskSet("counter").task(Split.TRAIN, 3)


class Counter(ToolWorld, capabilities={"oracle"}):
    """Count to the goal."""

    def begin(self, task: Task) -> str:
        self.state = {"goal": 3 + task.seed % 4, "count": 0}
        return f"goal {self.state['goal']}"

    @tool
    def add(self, by: int, note: str | None = None, how: Literal["up", "down"] = "up") -> str:
        """Change the count.

        Args:
            by: how much, at least 1.
            note: what to remember.
        """
        if by < 1:
            raise Refused("At least one.")
        self.state["count"] += by if how == "up" else -by
        return f"count {self.state['count']}"

    @tool
    def many(self, numbers: list[int]) -> str:
        """Add several numbers."""
        self.state["count"] += sum(numbers)
        return ""

    def verdict(self) -> bool | None:
        left = self.state["goal"] - self.state["count"]
        return None if left > 0 else left == 0

    def oracle(self) -> list[Action]:
        return [self.call("add", by=self.state["goal"] - self.state["count"])]


def begun() -> Counter:
    world = Counter()
    world.reset(TASK)
    return world


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject(Counter, TaskSet("counter"), steps=10))


def test_schemas_follow_from_the_methods() -> None:
    add, many = Counter().tools
    assert (add.name, add.description) == ("add", "Change the count.")
    assert add.parameters["required"] == ["by"]
    properties = add.parameters["properties"]
    assert properties["by"] == {"type": "integer", "description": "how much, at least 1."}
    assert properties["how"]["enum"] == ["up", "down"]
    assert many.parameters["properties"]["numbers"]["items"] == {"type": "integer"}
    assert "add(by: integer" in Counter().instructions


@pytest.mark.parametrize(
    "reply",
    [
        "add(by=2)",
        "add(2)",
        "I add two.\nadd(by=2, how='up')",
        '{"name": "add", "arguments": {"by": 2, "note": "two (2)"}}',
        '<tool_call>{"name": "add", "arguments": {"by": 2}}</tool_call>',
        "many(numbers=[1, 1])",
    ],
)
def test_calls_are_read_however_they_are_written(reply: str) -> None:
    world = begun()
    assert world.step(Action(reply)).valid
    assert world.state["count"] == 2


def test_a_call_beside_the_words_counts_instead_of_them() -> None:
    world = begun()
    assert world.step(Action("nothing here", ToolCall("add", {"by": 1}))).valid
    assert world.state["count"] == 1


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("add", "Call one tool, such as: add(by: integer"),
        ("add()", "needs the argument 'by'"),
        ("add(by='two')", "'by' must be integer, not \"two\""),
        ("add(by=True)", "'by' must be integer"),
        ("add(by=1, how='left')", "'how' must be"),
        ("add(by=1, far=2)", "has no argument 'far'"),
        ("subtract(by=1)", "There is no tool 'subtract'"),
        ("many(numbers=[1, 'a'])", "'numbers' must be array"),
        ("add(by=1+)", "Call one tool"),
        ("add(**{'by': 1})", "Call one tool"),
        ('{"a":' * 100_000, "Call one tool"),
        ("add(by={1, 2})", "plain values"),
        ("add(by=1, note='\\ud800')", "plain values"),
    ],
)
def test_what_is_no_call_is_answered_in_words(reply: str, answer: str) -> None:
    world = begun()
    result = world.step(Action(reply))
    assert not result.valid and answer in result.observation.text
    assert world.state["count"] == 0


def test_a_refusal_was_understood() -> None:
    result = begun().step(Action("add(by=0)"))
    assert result.valid and result.observation.text == "At least one."


def test_success_and_failure_end_the_episode() -> None:
    world = begun()
    won = world.step(world.oracle()[0])
    assert (won.success, won.terminated, won.reward) == (True, True, 1.0)
    world.reset(TASK)
    lost = world.step(Action("add(by=90)"))
    assert (lost.success, lost.terminated, lost.reward) == (False, True, 0.0)


def test_a_tool_without_a_type_or_without_words_is_refused() -> None:
    class Untyped(Counter):
        @tool
        def jump(self, far) -> str:  # type: ignore[no-untyped-def]
            """Jump."""
            return ""

    with pytest.raises(InputError, match="'jump' takes 'far', which has no type"):
        Untyped()

    class Silent(Counter):
        @tool
        def rest(self) -> str:
            return ""

    with pytest.raises(InputError, match="'rest' has no docstring"):
        Silent()
