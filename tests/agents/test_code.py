"""Code as action: one interpreter per episode, real environment steps, and kept functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaestra.agents.code.code_agent import CodeAgent
from palaestra.agents.code.reply_format import KNOWN, NO_CODE, block
from palaestra.agents.code.tool_functions import Calls, function_name
from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import InputError, MissingSystemPart, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.core.tool import Tool
from palaestra.environments import registry
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.sandbox.function_library import Library, checks, last_function
from palaestra.sandbox.interpreter import Asked
from tests.core.small import TASK, Stairs

PLUS = Tool(
    "math.plus",
    "Add.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
    },
)
TWICE = '''```python
def twice(x):
    """Two of it."""
    return 2 * x
print(act("up"))
```
```test
assert twice(3) == 6
```'''


def agent(**options: object) -> CodeAgent:
    return CodeAgent(sandbox="unsafe", **options)  # type: ignore[arg-type]


def run_episode(
    who: CodeAgent, replies: Sequence[str], past: Sequence[Event] = (), height: int = 3
) -> Episode:
    model = ScriptedModel(list(replies))
    session = Session(
        Key("test", 0), TASK, Stairs(height), who, {"agent": model},
        budget=Budget(turns=8), past=past,
    )  # fmt: skip
    return asyncio.run(session.run())


def python(*lines: str) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"


def seen(episode: Episode, call: int) -> str:
    """Return the last message before that call."""
    return episode.calls[call].messages[-1].text


def test_one_block_can_act_many_times_and_each_is_a_step_of_the_world() -> None:
    episode = run_episode(agent(), [python("while True:", "    print(act('up'))")])
    assert episode.outcome == Outcome.success()
    assert [step.action.text for step in episode.steps] == ["up"] * 3
    assert [step.call for step in episode.steps] == [0, 0, 0]


def test_variables_last_and_errors_are_told() -> None:
    replies = [python("way = 'up'", "1 / 0"), python("act(way)"), python("act(way); act(way)")]
    episode = run_episode(agent(), replies)
    assert episode.outcome == Outcome.success()
    assert "ZeroDivisionError" in seen(episode, 1)
    assert seen(episode, 2) == "You are on step 1 of 3."


def test_a_reply_without_code_is_answered_and_patience_ends() -> None:
    episode = run_episode(agent(patience=2), ["up", python("x = 1")])
    assert (episode.outcome.kind, episode.outcome.owner) == ("unparsed", Owner.AGENT)
    assert seen(episode, 1) == NO_CODE and not episode.steps


def test_a_block_that_never_ends_is_stopped() -> None:
    episode = run_episode(
        agent(seconds=0.3), [python("while True: pass"), python("for _ in 'abc': act('up')")]
    )
    assert "Stopped after 0.3 s" in seen(episode, 1) and episode.outcome == Outcome.success()


def test_the_budget_holds_within_a_block() -> None:
    episode = run_episode(agent(), [python("while True: act('up')")], height=99)
    assert str(episode.outcome.limit) == "turns" and len(episode.steps) == 8


def test_calls_of_tools_are_actions_by_name_or_by_order() -> None:
    calls = Calls([PLUS])
    assert calls.names == ["math.plus", "act"] and "math.plus(a: integer, b" in calls.signatures
    wanted = ToolCall("math.plus", {"a": 1, "b": 2})
    assert calls.action(Asked("math.plus", (1, 2), {})) == Action(str(wanted), wanted)
    assert calls.action(Asked("math.plus", (1,), {"b": 2})) == Action(str(wanted), wanted)
    assert Calls.code_for(Action("", wanted)) == "math.plus(a=1, b=2)"
    assert Calls.code_for(Action("it's")) == 'act("it\'s")'


@pytest.mark.parametrize(
    "asked",
    [
        Asked("math_plus", ("x",), {}),
        Asked("math_plus", (), {}),
        Asked("math_plus", (1, 2, 3), {}),
        Asked("act", (), {}),
        Asked("act", (3,), {}),
        Asked("open", (), {}),
    ],
)
def test_a_call_that_does_not_fit_is_an_error_of_the_code(asked: Asked) -> None:
    assert isinstance(Calls([PLUS]).action(asked), str)


@pytest.mark.parametrize(
    ("tool", "name"), [("a.b-c", "a.b_c"), ("2x", "_2x"), ("import", "import_"), ("", "_")]
)
def test_every_tool_has_a_name_in_python(tool: str, name: str) -> None:
    assert function_name(tool) == name


def test_blocks_are_found_closed_or_not() -> None:
    assert block("so:\n```python\nx\n```\n```test\ny\n```", "python") == "x"
    assert block("```python\nx\n", "python") == "x\n"
    assert block("```\nx\n```", "python") is None


@pytest.mark.parametrize("id", ["probe/memory-4", "terminal/count@unsafe"])
def test_an_expert_solves_by_code(id: str) -> None:
    who = agent()
    world = LocalEnvironment(registry.make(id))
    task = registry.tasks(id).task(Split.TEST, 0)
    models = {"agent": ExpertModel(who).for_environment(world)}

    async def roll_out() -> Episode:
        try:
            return await Session(Key("t", 0), task, world, who, models).run()
        finally:
            await world.close()

    episode = asyncio.run(roll_out())
    assert episode.outcome == Outcome.success()
    assert all(call.reply.text.startswith("```python\nact(") for call in episode.calls)


def test_an_expert_solves_apps_by_functions_that_it_has_read_about() -> None:
    who = agent()
    world = LocalEnvironment(registry.make("apps/easy:code"))
    task = registry.tasks("apps/easy:code").task(Split.TEST, 0)
    models = {"agent": ExpertModel(who).for_environment(world)}
    episode = asyncio.run(Session(Key("t", 0), task, world, who, models).run())
    assert episode.outcome == Outcome.success()
    assert "contacts.login" not in episode.calls[0].messages[0].text
    assert any("contacts.login(username: string" in one.messages[-1].text for one in episode.calls)


def test_a_function_that_a_call_brings_is_there_at_once_and_answers_with_values() -> None:
    cell = python(
        "try:",
        "    mail.login",
        "except NameError:",
        "    print('not yet')",
        "read_api('supervisor.list_credentials'), read_api('mail.login')",
        "known = supervisor.list_credentials(per_page=20)['credentials']",
        "mine = next(row for row in known if row['app'] == 'mail')",
        "token = mail.login(mine['username'], mine['password'])['access_token']",
        "read_api('mail.list_messages')",
        "found = mail.list_messages(access_token=token)",
        "print(type(found).__name__, mail.list_messages()['error'])",
        "finish()",
    )
    world = LocalEnvironment(registry.make("apps/easy:code"))
    task = registry.tasks("apps/easy:code").task(Split.TEST, 0)
    last = python("print('there')")
    models = {"agent": ScriptedModel([cell.replace("finish()\n", ""), last, python("finish()")])}
    episode = asyncio.run(Session(Key("t", 0), task, world, agent(), models).run())
    said = seen(episode, 1)
    assert said.startswith("not yet\ndict Sign in with mail.login")
    assert "mail.list_messages(" in said
    assert [step.action.call.name for step in episode.steps if step.action.call][2:4] == [
        "supervisor.list_credentials",
        "mail.login",
    ]


def test_a_tested_function_is_kept_told_and_called_in_a_later_episode(tmp_path: Path) -> None:
    who = agent(library=str(tmp_path / "library.jsonl"))
    first = run_episode(who, [TWICE, python("act('up'); act('up')")])
    assert "Kept twice as version" in seen(first, 1)
    later = run_episode(who, [python("for _ in range(twice(1) + 1): act('up')")])
    assert later.outcome == Outcome.success()
    assert 'twice(x)  """Two of it."""' in later.calls[0].messages[0].text.partition(KNOWN)[2]


@pytest.mark.parametrize(
    "test",
    ["assert twice(3) == 7", "assert True", "twice(3)", "assert twice(3", "assert act('up')"],
)
def test_a_function_is_not_kept_without_a_test_that_it_passes(tmp_path: Path, test: str) -> None:
    file = tmp_path / "library.jsonl"
    reply = TWICE.replace("assert twice(3) == 6", test)
    episode = run_episode(agent(library=str(file)), [reply, python("act('up'); act('up')")])
    assert "not kept" in seen(episode, 1) and not file.exists()


def test_a_replayed_episode_uses_the_same_versions(tmp_path: Path) -> None:
    file = tmp_path / "library.jsonl"
    who = agent(library=str(file))
    run_episode(who, [TWICE, python("act('up'); act('up')")])
    replies = [python("x = twice(1)"), python("for _ in range(x + 1): act('up')")]
    whole = run_episode(who, replies)
    Library(file).keep("twice", "def twice(x):\n    return 0", "assert twice(0) == 0")
    past = [whole.calls[0]]
    again = run_episode(agent(library=str(file)), replies, past)
    assert again.calls[0].messages == whole.calls[0].messages
    assert again.outcome == Outcome.success() and len(again.steps) == 3


def test_versions_are_named_by_what_they_are_and_know_their_parents(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.jsonl")
    one = library.keep("f", "def f(): return 1", "assert f() == 1")
    other = library.keep("f", "def f(): return 2", "assert f() == 2")
    assert (one.parent, other.parent) == (None, one.version)
    assert library.keep("f", one.source, one.test) == one and len(library.versions()) == 2
    assert library.latest() == [other]
    assert library.with_versions([one.version]) == [one]
    with pytest.raises(InputError, match="no version 0123"):
        library.with_versions(["0123"])


def test_an_invalid_library_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its folder does not exist"):
        Library(tmp_path / "none" / "library.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps([1]))
    with pytest.raises(InputError, match="is not a library"):
        Library(bad)
    with pytest.raises(UnknownName, match="Did you mean 'library'"):
        make_agent("code?libary=x")


def test_imports_and_helpers_are_kept_with_a_function() -> None:
    cell = "import math\nx = 3\ndef a(): return math.pi\ndef b(): return a()\nprint(b())"
    assert last_function(cell) == (
        "b",
        "import math\n\ndef a(): return math.pi\n\ndef b(): return a()",
    )
    assert last_function("x = 1") is None and last_function("def") is None
    assert checks("assert b() > 3", "b") and not checks("assert 1", "b")


def test_by_default_code_runs_within_walls() -> None:
    try:
        episode = run_episode(CodeAgent(), [python("import os", "for _ in 'abc': act('up')")])
    except MissingSystemPart as error:
        pytest.skip(str(error))
    assert episode.outcome == Outcome.success()
