"""Examples from rows: which are shown, what of them, and what a model makes of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.memory.retrieved_examples import HEAD, ExamplesAgent, read_examples
from palaestra.agents.registry import make_agent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

ANIMALS = ("cat", "dog", "fox")
SOUNDS = {"cat": "miaow", "dog": "woof", "fox": "yip"}


class Sounds(Environment):
    """An animal is named by two words; its sound has to be said."""

    instructions = "Say what it says."

    def reset(self, task: Task) -> Observation:
        self.animal = ANIMALS[task.seed % 3]
        return Observation(f"Rules: one word.\nTask {task.seed}: the {self.animal} speaks.")

    def step(self, action: Action) -> Transition:
        right = action.text == SOUNDS[self.animal]
        return Transition(Observation("Over."), float(right), terminated=True, success=right)


def row(number: int, said: str, *, solved: bool = True) -> dict[str, Any]:
    first = f"Rules: one word.\nTask {number}: the {ANIMALS[number % 3]} speaks."
    said_first = [("system", "x"), ("user", first), ("assistant", said), ("user", "Over.")]
    return {
        "messages": [{"role": role, "content": text} for role, text in said_first],
        "solved": solved,
    }


def written(folder: Path, *rows: object) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return file


def repeating(messages: Sequence[Message]) -> str:
    """Say what was said last in the examples; without any, say nothing right."""
    said = re.findall(r"^> (.*)$", messages[0].text, re.M)
    return said[-1] if said else "hello"


def episode(agent: str, seed: int) -> Episode:
    session = Session(
        Key("sounds", 0, 0),
        Task(f"test/{seed}", "sounds", seed),
        LocalEnvironment(Sounds()),
        make_agent(agent),
        {"agent": ScriptedModel(repeating)},
    )
    return asyncio.run(session.run())


def opening(played: Episode) -> str:
    return played.calls[0].messages[0].text


def test_the_most_similar_solved_row_comes_last_with_its_own_lines_alone(tmp_path) -> None:
    rows = [row(n, SOUNDS[ANIMALS[n % 3]]) for n in range(3)]
    agent = f"examples?rows={written(tmp_path, *rows)}&k=2"
    shown = opening(episode(agent, 7)).split(HEAD)[1:]
    assert len(shown) == 2 and shown[-1] == "Task 1: the dog speaks.\n> woof\nOver."


def test_unsolved_rows_and_the_row_of_the_very_task_are_not_shown(tmp_path) -> None:
    file = written(tmp_path, row(0, "woof", solved=False), row(3, "miaow"), row(1, "woof"))
    assert "> woof" not in opening(episode(f"examples?rows={file}&k=1", 0))
    assert "Task 3" not in opening(episode(f"examples?rows={file}&k=3", 3))


def test_a_model_that_repeats_examples_succeeds_with_them_only(tmp_path) -> None:
    rows = [row(n, SOUNDS[ANIMALS[n % 3]]) for n in range(3)]
    agent = f"examples?rows={written(tmp_path, *rows)}&k=1"
    assert all(episode(agent, seed).outcome.solved for seed in range(3, 9))
    assert not any(episode("direct", seed).outcome.solved for seed in range(3, 9))


def test_calls_of_tools_are_shown_as_calls(tmp_path) -> None:
    call = {"function": {"name": "look", "arguments": '{"at": "door"}'}}
    messages = [
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "A door."},
    ]
    (example,) = read_examples(written(tmp_path, {"messages": messages}))
    assert example.shown("") == 'What is there?\n> look({"at": "door"})\nA door.'


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "has no solved row"),
        ([row(0, "miaow", solved=False)], "has no solved row"),
        ([row(0, "miaow"), {"text": "x"}], "line 2 is no chat"),
        ([5], "line 1 is no chat"),
        ([{"messages": [{"role": "user", "content": "Hello"}]}], "line 1 is no chat"),
    ],
)
def test_files_that_are_no_rows_are_refused(tmp_path, rows, reason) -> None:
    with pytest.raises(InputError, match=reason):
        ExamplesAgent(rows=str(written(tmp_path, *rows)))


def test_a_missing_file_or_option_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        make_agent(f"examples?rows={tmp_path}/none.jsonl")
    with pytest.raises(InputError, match="needs rows"):
        make_agent("examples")
    with pytest.raises(InputError, match="k=0"):
        make_agent(f"examples?rows={written(tmp_path, row(0, 'miaow'))}&k=0")
