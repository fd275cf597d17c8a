"""The knob `library`: kept functions are tools of any environment, for members and by MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.memory.toolbox import FIND
from palaestra.agents.players import PlayersAgent
from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_environment
from palaestra.evaluation.statistics.conversation import conversation
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.sandbox.function_library import Library
from tests.gateway.visits import visit

SOURCES = {
    "join": 'def join(first: str, *, second: str = "big") -> str:\n'
    '    """Join the words of a thing."""\n    return f"{first} {second}"\n',
    "tidy": 'def tidy(text: str) -> str:\n    """Sort the letters."""\n    return text.strip()\n',
    "crash": "def crash():\n    raise ValueError('no luck')\n",
    "leave": "def leave():\n    import os\n    os._exit(3)\n",
    "odd": "def odd(n: int):\n    return {n}\n",
    "rub": "def rub():\n    return '\\ud800'\n",
    "long": "def long():\n    return 'x' * 20000\n",
    "dice": "def dice():\n    import random\n    return random.random()\n",
}
QUESTION = "questions/things-2"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "library.jsonl"
    for name, source in SOURCES.items():
        Library(file).keep(name, source, f"assert {name}")
    return file


@pytest.fixture
def world(library: Path) -> Iterator[Environment]:
    made = registry.make(f"{QUESTION}?library={library}@unsafe")
    made.reset(registry.tasks(QUESTION).task(Split.TRAIN, 0))
    yield made
    made.close()


def test_the_contract_holds_with_a_library(library: Path) -> None:
    for id in (QUESTION, f"{QUESTION}?team=majority"):
        query = "&" if "?" in id else "?"
        findings = check_environment(f"{id}{query}library={library}@unsafe")
        assert [finding for finding in findings if not finding.holds] == []


def test_a_call_makes_no_move_and_answers_with_the_result(world: Environment) -> None:
    before = world.state_key()
    done = world.step(Action("join('red')"))
    assert done.observation.text == "red big" and done.valid and not done.terminated
    assert done.info["function"] == "join" and done.info["failed"] is False
    call = ToolCall("join", {"first": "red", "second": "small"})
    assert world.step(Action(str(call), call)).observation.text == "red small"
    assert world.state_key() == before
    first, again = (world.step(Action("dice()")).observation.text for _ in range(2))
    assert first == again  # calls share nothing, and their chance is the task's
    assert world.step(Action("I join(ed) them")).info.get("function") is None


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("crash()", "crash failed: ValueError: no luck"),
        ("leave()", "leave failed: The interpreter ended."),
        ("odd(n=3)", "{3}\n(JSON cannot hold a value of type set; this is its repr.)"),
        ("rub()", "?"),
    ],
)
def test_what_goes_wrong_in_a_function_is_said_in_a_sentence(
    world: Environment, call: str, answer: str
) -> None:
    done = world.step(Action(call))
    assert done.valid and done.observation.text == answer


def test_a_function_that_hangs_is_stopped(
    world: Environment, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestra.environments.wrappers import library_functions
    from palaestra.sandbox.function_calls import call

    def briefly(*arguments: object, seed: int) -> object:
        return call(*arguments, seconds=0.3, seed=seed)  # type: ignore[arg-type]

    library.write_text("")
    Library(library).keep("hang", "def hang():\n    while True:\n        pass\n", "assert hang")
    made = registry.make(f"{QUESTION}?library={library}@unsafe")
    made.reset(registry.tasks(QUESTION).task(Split.TRAIN, 0))
    monkeypatch.setattr(library_functions, "call", briefly)
    try:
        assert made.step(Action("hang()")).observation.text == "hang failed: Stopped after 0.3 s."
    finally:
        made.close()


def test_long_results_are_cut_and_wrong_arguments_refused(world: Environment) -> None:
    assert "(12000 characters left out)" in world.step(Action("long()")).observation.text
    for call in ("join(3)", "join()", "tidy(text='a', more=1)", "join(first=x)"):
        assert not world.step(Action(call)).valid


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("act", "{file}@unsafe", "has a tool of that name"),
        (None, "{file}", "holds no function"),
        (None, "{file}.none", "There is no library"),
    ],
)
def test_libraries_that_cannot_serve_are_refused_before_the_start(
    tmp_path: Path, name: str | None, value: str, reason: str
) -> None:
    file = tmp_path / "library.jsonl"
    file.touch()
    if name is not None:
        Library(file).keep(name, f"def {name}():\n    pass\n", f"assert {name}")
    with pytest.raises((InputError, UnknownName), match=reason):
        registry.make(f"{QUESTION}?library={value.format(file=file)}")


def test_a_library_that_changes_during_a_run_is_an_error(world: Environment, library: Path) -> None:
    Library(library).keep("late", "def late():\n    return 1\n", "assert late() == 1")
    with pytest.raises(EnvironmentFault, match="has changed since the run began"):
        world.reset(registry.tasks(QUESTION).task(Split.TRAIN, 0))


MADE = """```python
def tidy(text: str) -> str:
    \"\"\"Sort letters and cut spaces.\"\"\"
    return text.strip()
act('colour')
```
```test
assert tidy(' a ') == 'a'
```"""


def run(made: Environment, agent: Agent, models: dict[str, Model]) -> Episode:
    task = registry.tasks(QUESTION).task(Split.TRAIN, 0)
    session = Session(Key("test", 0), task, LocalEnvironment(made), agent, models)
    try:
        return asyncio.run(session.run())
    finally:
        made.close()


def test_any_member_finds_by_words_what_a_worker_kept_in_an_earlier_task(tmp_path: Path) -> None:
    file = tmp_path / "library.jsonl"
    Library(file).keep("join", SOURCES["join"], "assert join('a') == 'a big'")
    worker = make_agent(f"code?sandbox=unsafe&library={file}")
    model = ScriptedModel([MADE, "```python\nact(tidy(' red big '))\n```"])
    run(registry.make(QUESTION), worker, {"agent": model})
    members = PlayersAgent(first="toolbox?limit=1", second="tools", third="direct")
    called = '<tool_call>{"name": "join", "arguments": {"first": "a"}}</tool_call>'
    models: dict[str, Model] = {
        "first": ScriptedModel(
            [
                'drop_tools(names=["act"])',
                f'{FIND.name}(words="cut the spaces")',
                "tidy(text=' red big ')",
                "red big",
            ]
        ),
        "second": ScriptedModel([called, "red big"]),
        "third": ScriptedModel(["join('b')", "nothing"]),
        "agent": ScriptedModel([]),
    }
    made = registry.make(f"{QUESTION}?team=majority&library={file}@unsafe")
    episode = run(made, members, models)
    asked = [call for call in episode.calls if call.role == "first"]
    assert "Now at hand: tidy." in asked[2].messages[-1].text
    did = {step.action.text: step.transition.observation.text for step in episode.steps}
    assert did["tidy(text=' red big ')"] == "red big" and did["join('b')"] == "b big"
    talk = conversation(episode)
    assert [talk.members[name].does["call"] for name in ("first", "second", "third")] == [1, 1, 1]


def test_the_gateway_offers_functions_by_mcp(world: Environment) -> None:
    async def run() -> None:
        async with visit(ScriptedModel(["up"]), world=LocalEnvironment(world)) as visited:
            listed = (await visited.rpc("tools/list")).json()["result"]["tools"]
            join = next(tool for tool in listed if tool["name"] == "join")
            assert join["inputSchema"]["properties"]["second"]["default"] == "big"
            assert join["description"].startswith("Join the words of a thing.")
            asked = {"name": "join", "arguments": {"first": "red"}}
            called = (await visited.rpc("tools/call", **asked)).json()["result"]
            assert called["content"][0]["text"] == "red big"
            assert not called["_meta"]["palaestra/over"]

    asyncio.run(run())


def test_the_mcp_sdk_calls_a_kept_function_through_the_gateway(world: Environment) -> None:
    mcp = pytest.importorskip("mcp", reason="the SDK is not in the dev extra")
    if not hasattr(mcp, "Client"):
        pytest.skip("written for version 2 of the SDK")

    async def run() -> None:
        async with visit(ScriptedModel(["up"]), world=LocalEnvironment(world)) as visited:
            url = f"{visited.address}/mcp?token={visited.endpoint.token}"
            async with mcp.Client(url) as sdk:
                tools = {tool.name: tool for tool in (await sdk.list_tools()).tools}
                assert tools["odd"].input_schema["required"] == ["n"]
                found = await sdk.call_tool("join", {"first": "red"})
                assert found.content[0].text == "red big"
                failed = await sdk.call_tool("crash", {})
                assert failed.content[0].text == "crash failed: ValueError: no luck"

    asyncio.run(run())


def test_the_command_line_takes_a_library(tmp_path: Path, library: Path, capsys: Any) -> None:
    command = ["eval", "--model", "expert", "-n", "2", "--run", str(tmp_path / "run"), "--env"]
    assert main([*command, f"{QUESTION}?library={library}@unsafe", "--workers", "0"]) == 0
    assert main([*command, f"{QUESTION}?library={tmp_path}/none"]) == 2
    assert "There is no library" in capsys.readouterr().err
