"""A library of functions as tools: schemas parsed from source, calls in a sandbox, MCP."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.code import library_server
from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.core.errors import InputError, MissingPackage
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.core.tool import NotACall
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.sandbox import function_calls
from palaestra.sandbox.function_library import Library
from palaestra.sandbox.function_schema import tool_of
from palaestra.sandbox.unsafe import PlainSandbox

MCP = importlib.util.find_spec("mcp") is not None
AREA = '''
import math

def area(width: float, height: float = 1.0, *, unit: "str | None" = None) -> str:
    """The area of a rectangle.

    In the unit given.
    """
    return f"{math.floor(width * height)} {unit or 'squares'}"
'''
TILES = """
from typing import Literal

def tiles(rooms: list[float], kind: Literal["big", "small"], extra=len("ab"), /, *more, **named):
    counts = [area(room) for room in rooms]
    print("counting")
    return {"rooms": counts, "kind": kind, "extra": extra}
"""
LEAK = "def leak(path: str) -> str:\n    return open(path).read()\n"
FOREVER = "def forever():\n    while True:\n        pass\n"
STRANGE = "def strange(n: int) -> object:\n    return {1, n}\n"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    found = Library(tmp_path / "library.jsonl")
    found.keep("area", "def area(width):\n    return 0\n", "assert area(1) == 0")
    found.keep("area", AREA, "assert area(2, 3) == '6 squares'")
    for name, source in (("tiles", TILES), ("leak", LEAK), ("forever", FOREVER)):
        found.keep(name, source, f"assert {name}")
    found.keep("strange", STRANGE, "assert strange(2)")
    return found


def called(library: Library, name: str, /, **arguments: Any) -> function_calls.Result:
    asked = ToolCall(name, arguments)
    with function_calls.warm_pool(PlainSandbox.name, seconds=2.0) as pool:
        return function_calls.call(library.latest(), asked, pool, seconds=2.0)


def test_calls_of_one_pool_share_nothing(library: Library, tmp_path: Path) -> None:
    marker = (
        "import os\n\ndef mark():\n    here = os.path.exists('m')\n    open('m', 'w').close()\n"
    )
    library.keep("mark", marker + "    return here\n", "assert not mark()")
    with function_calls.warm_pool(PlainSandbox.name, seconds=2.0) as pool:
        for _ in range(3):
            pool.wait_until_ready()
            assert function_calls.call(library.latest(), ToolCall("mark", {}), pool).value is False


def test_a_tool_is_the_newest_version_with_its_words_and_schema(library: Library) -> None:
    newest = {function.name: function for function in library.latest()}
    area = tool_of(newest["area"])
    assert area.description.startswith("The area of a rectangle.\n\nIn the unit given.")
    assert f"version {newest['area'].version}" in area.description
    assert area.parameters == {
        "type": "object",
        "properties": {
            "width": {"type": "number"},
            "height": {"type": "number", "default": 1.0},
            "unit": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["width"],
    }
    tiles = tool_of(newest["tiles"]).parameters
    assert tiles["required"] == ["rooms", "kind"]
    assert tiles["properties"] == {
        "rooms": {"type": "array", "items": {"type": "number"}},
        "kind": {"enum": ["big", "small"]},
        "extra": {},  # its default is no literal
    }


def test_functions_call_each_other_and_give_back_what_json_carries(library: Library) -> None:
    assert called(library, "area", width=2.5, height=2, unit="m2").value == "5 m2"
    found = called(library, "tiles", rooms=[1.5, 2.0], kind="big")
    assert found.value == {"rooms": ["1 squares", "2 squares"], "kind": "big", "extra": 2}
    assert found.text == "counting\n" + json.dumps(found.value)
    assert called(library, "strange", n=2).value == "{1, 2}"


def test_failures_are_reported_and_wrong_arguments_refused(library: Library) -> None:
    failed = called(library, "leak", path="nowhere.txt")
    assert failed.failed and "FileNotFoundError" in failed.text
    endless = called(library, "forever")
    assert endless.failed and "Stopped after 2 s" in endless.text
    for name, arguments in (
        ("area", {}),
        ("area", {"width": "wide"}),
        ("area", {"width": 1, "depth": 2}),
        ("tiles", {"rooms": [1], "kind": "huge"}),
        ("nothing", {}),
    ):
        with pytest.raises(NotACall):
            called(library, name, **arguments)


def test_the_command_line_lists_a_library(library: Library, tmp_path: Path, capsys: Any) -> None:
    assert main(["agents", "library", str(tmp_path / "library.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "area(width: float, height: float=1.0" in shown and "2 versions" in shown
    assert main(["agents", "library", str(tmp_path / "none" / "library.jsonl")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err
    assert main(["agents", "library", str(tmp_path / "no.jsonl")]) == 2


@pytest.mark.skipif(MCP, reason="the package mcp is installed")
def test_serving_without_the_protocol_names_what_to_install(library: Library) -> None:
    with pytest.raises(MissingPackage, match=r"palaestra\[mcp\]"):
        asyncio.run(library_server.serve(library))


# ── by the protocol ──────────────────────────────────────────────────────────

DESCRIPTION = """
command = "{{python}}"
arguments = [
    "-m", "palaestra.agents.code.library_server", "library.jsonl", "--sandbox", "{sandbox}",
]
environment = {{ PYTHONPATH = "{path}" }}
deterministic = true

[[tasks]]
id = "floor"
instruction = "How large is a floor of 3 by 4, in m2?"
check = {{ tool = "area", arguments = {{ width = 1, height = 1 }}, equals = "1 squares" }}
solution = [
    {{ tool = "area", arguments = {{ width = 3, height = 4, unit = "m2" }} }},
    "12 m2",
]
"""


@pytest.mark.skipif(not MCP, reason="needs the package mcp, version 2")
@pytest.mark.parametrize("sandbox", ["auto", PlainSandbox.name])
def test_an_agent_uses_by_mcp_what_another_one_wrote(
    library: Library, tmp_path: Path, sandbox: str
) -> None:
    from palaestra.environments.families.mcp.environment import McpEnvironment
    from palaestra.sandbox.factory import open_sandbox

    try:
        open_sandbox(sandbox).close()
    except InputError as why:
        pytest.skip(str(why))
    path = ":".join(part for part in sys.path if part)
    described = DESCRIPTION.format(sandbox=sandbox, path=path)
    (tmp_path / "world.toml").write_text(described)
    world = McpEnvironment(str(tmp_path / "world.toml"))
    try:
        assert [tool.name for tool in world.tools] == [f.name for f in library.latest()]
        (task,) = world.tasks(f"mcp/{tmp_path / 'world.toml'}").take(Split.TEST, 1)
        agent = make_agent("tools")
        local = LocalEnvironment(world)
        expert = ExpertModel(agent, environment=local)
        session = Session(Key("test", 0), task, local, agent, {"agent": expert})
        episode = asyncio.run(session.run())
        assert episode.outcome.solved, episode.outcome
        assert episode.steps[0].transition.observation.text == "12 m2"
        world.reset(task)
        assert not world.step(action(ToolCall("area", {"width": "wide"}))).valid
        seen = world.step(action(ToolCall("leak", {"path": str(tmp_path / "library.jsonl")})))
        inside = "FileNotFoundError" in seen.observation.text
        assert seen.valid and inside == (sandbox != PlainSandbox.name)  # walls, or none
        library.keep("late", "def late() -> int:\n    return 7\n", "assert late() == 7")
        assert world._link is not None and world._link.call("late", {}).data == {"result": 7}
    finally:
        world.close()


def action(call: ToolCall) -> Any:
    from palaestra.core.environment import Action

    return Action(str(call), call)
