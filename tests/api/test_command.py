"""`pa.command`: programs from outside as agents of `pa.evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.agents.registry import make_agent
from palaestra.gateway.program_agents import CommandAgent

PROGRAM = """
import json, os, sys
from urllib.request import Request, urlopen

headers = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
over = False
while not over:
    body = json.dumps({"action": sys.argv[1]}).encode()
    over = json.load(urlopen(Request(os.environ["PALAESTRA_WORLD_URL"] + "/step", body, headers)))
    over = over["over"]
"""


@pytest.mark.parametrize(
    "words", [["python", "a file.py", "a&b=c%20", "it's"], ["python", "-c", "print('x?y')"]]
)
def test_words_arrive_as_they_were_given(words: list[str]) -> None:
    agent = make_agent(pa.command(words))
    assert isinstance(agent, CommandAgent)
    assert agent._argv == words


def test_a_line_is_read_as_a_shell_would() -> None:
    agent = make_agent(pa.command("python 'a file.py' --fast"))
    assert isinstance(agent, CommandAgent)
    assert agent._argv == ["python", "a file.py", "--fast"]


def test_the_options_of_the_sandbox_are_those_of_the_command_line() -> None:
    name = pa.command(
        "python x.py", sandbox="bubblewrap", mounts=["a", "b"], limits={"memory": 9}, rewards=False
    )
    assert name == (
        "command?line=python x.py&sandbox=bubblewrap&mounts=a:b&limits=memory=9&rewards=false"
    )


def test_a_program_is_evaluated_beside_an_agent_of_ours(tmp_path: Path) -> None:
    program = tmp_path / "my program.py"
    program.write_text(PROGRAM)
    agents = [pa.command([sys.executable, str(program), "take"]), "direct"]
    results = pa.evaluate("probe/umbrella-4", agent=agents, model="expert", n=2, progress=False)
    outside, ours = results.cells
    assert outside["agent"].startswith("command?line=") and ours["success"] == 1.0
    assert all(
        step.action.text == "take"
        for episode in results.episodes
        if episode.agent == "command"
        for step in episode.steps
    )
    assert [episode.agent for episode in results.episodes] == ["command"] * 2 + ["direct"] * 2
