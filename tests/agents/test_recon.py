"""Tools from contrasted attempts: who plays which attempt, what is kept, and who profits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaestra.agents.memory.attempt_stories import read_story
from palaestra.agents.memory.recon import HINTS, TOOLS, WRITE, ReconAgent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

RIGHT = "[f'say {word}' for word in first.split()[1:]]"


class Words(Environment, capabilities={"oracle"}):
    """All words of the first observation have to be said in their order."""

    instructions = "Say the words."

    def reset(self, task: Task) -> Observation:
        self.left = [f"{chr(97 + task.seed)}{place}" for place in range(2)]
        return Observation(" ".join(["Say", *self.left]))

    def step(self, action: Action) -> Transition:
        right = action.text == f"say {self.left[0]}"
        self.left = self.left[1:] if right else self.left
        over = not right or not self.left
        return Transition(Observation("…"), float(right), terminated=over, success=right and over)

    def oracle(self) -> Sequence[Action]:
        return [Action(f"say {word}") for word in self.left]


def acting(messages: Sequence[Message]) -> str:
    """Take the first tool; without one, say nothing right."""
    told = messages[0].text.partition(TOOLS)[2].strip()
    return told.partition(":")[0] or "hello"


def writer(value: str, test: str = "") -> ScriptedModel:
    """Return a model that writes a function which returns that expression."""

    def said(messages: Sequence[Message]) -> str:
        first, taken = read_story(messages[1].text.rpartition("\n\n")[2].partition(":\n")[2])
        checked = test or f"assert tool({first!r}) == {taken!r}"
        return f"```python\ndef tool(first):\n    return {value}\n```\n```test\n{checked}\n```"

    return ScriptedModel(said)


def attempt(
    agent: ReconAgent, writing: Model, task: int = 0, member: int = 0, phase: str = "train"
) -> Episode:
    world = LocalEnvironment(Words())
    models = {
        "agent": ScriptedModel(acting),
        "scout": ExpertModel(agent, environment=world),
        "writer": writing,
    }
    key = Key(phase, task, member)
    session = Session(key, Task(f"{phase}/{task}", "words", task), world, agent, models)
    episode = asyncio.run(session.run())
    agent.witness(episode)
    return episode


def made(folder: Path) -> ReconAgent:
    return ReconAgent(library=str(folder / "tools.jsonl"), sandbox="unsafe")


def roles(episode: Episode) -> list[str]:
    return [call.role for call in episode.calls]


def test_a_failed_and_a_successful_attempt_become_a_tool_for_other_tasks(tmp_path: Path) -> None:
    agent, writing = made(tmp_path), writer(RIGHT)
    first, second, third = (attempt(agent, writing, member=member) for member in range(3))
    assert (roles(first), first.outcome.solved) == (["agent"], False)
    assert (set(roles(second)), second.outcome.solved) == ({"scout"}, True)
    assert (roles(third), third.outcome.solved) == (["writer", "agent"], True)  # at once
    assert attempt(agent, writing, task=1).outcome.solved  # live, another task
    later = attempt(made(tmp_path), writing, task=2, phase="test")  # the next run
    assert later.outcome.solved and roles(later) == ["agent"]
    assert [step.action.text for step in later.steps] == ["say c0", "say c1"]
    assert {step.call for step in later.steps} == {0}  # both actions are that reply's


def test_the_writer_reads_both_attempts(tmp_path: Path) -> None:
    agent, writing = made(tmp_path), writer(RIGHT)
    *_, third = (attempt(agent, writing, member=member) for member in range(3))
    told = third.calls[0].messages
    assert told[0].text == WRITE
    failed, _, solved = told[1].text.partition("succeeded:")
    assert "> hello" in failed and "> say a0" in solved and "> say a0" not in failed


@pytest.mark.parametrize(
    ("value", "test"),
    [("['say x']", ""), (RIGHT, "assert True"), ("1 / 0", ""), ("missing", "")],
)
def test_a_function_whose_test_fails_or_asserts_nothing_is_not_kept(
    tmp_path: Path, value: str, test: str
) -> None:
    agent = made(tmp_path)
    episodes = [attempt(agent, writer(value, test), member=member) for member in range(3)]
    assert not episodes[2].outcome.solved
    assert agent.library.latest() == []


def test_a_text_is_a_hint_that_later_prompts_show(tmp_path: Path) -> None:
    agent = made(tmp_path)
    hint = "'Say each word by itself.'"
    writing = writer(hint, f"assert tool('x') == {hint}")
    for member in range(3):
        attempt(agent, writing, member=member)
    told = attempt(agent, writing, task=1).calls[0].messages[0].text
    assert told.endswith(f"{HINTS}\n- Say each word by itself.") and TOOLS not in told


@pytest.mark.parametrize("source", ["1 / 0", "None", "[]", "[1]", "object()", "{'a': 1}"])
def test_a_function_that_fails_or_does_not_apply_is_not_offered(
    tmp_path: Path, source: str
) -> None:
    agent = made(tmp_path)
    agent.library.keep("odd", f"def odd(first):\n    return {source}", "assert odd")
    agent.library.keep("tool", f"def tool(first):\n    return {RIGHT}", "assert tool")
    episode = attempt(agent, writer(RIGHT))
    assert episode.outcome.solved
    assert "odd" not in episode.calls[0].messages[0].text


def test_the_newest_version_of_a_tool_is_offered_first(tmp_path: Path) -> None:
    agent = made(tmp_path)
    agent.library.keep("old", "def old(first):\n    return ['say nothing']", "assert old")
    agent.library.keep("new", f"def new(first):\n    return {RIGHT}", "assert new")
    told = attempt(agent, writer(RIGHT)).calls[0].messages[0].text.partition(TOOLS)[2]
    assert re.findall(r"^(\w+):", told, re.MULTILINE) == ["new", "old"]


def test_the_expert_writes_what_succeeded(tmp_path: Path) -> None:
    agent, world = made(tmp_path), LocalEnvironment(Words())
    writing = ExpertModel(agent, environment=world)
    asyncio.run(world.reset(Task("train/0", "words", 0)))
    episodes = [attempt(agent, writing, member=member) for member in range(3)]
    assert [one.outcome.solved for one in episodes] == [False, True, True]
    assert not attempt(agent, writing, task=1).outcome.solved  # it is for that task alone
