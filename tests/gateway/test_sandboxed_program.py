"""Programs in a sandbox: they act as without it, and reach only the gateway."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.gateway.program_agents import CommandAgent, name_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.sandbox.bubblewrap import BubblewrapSandbox
from palaestra.training.recipe import load
from tests.core.small import KEY, TASK, Stairs

PYTHON = Path(sys.executable).resolve()
missing = BubblewrapSandbox.missing()
walled = pytest.mark.skipif(missing is not None, reason=missing or "")

PRYING = """
import json, os, socket, sys
from urllib.request import Request, urlopen

hidden, shown, port = sys.argv[1].lstrip("@"), sys.argv[2].lstrip("@"), int(sys.argv[3])

def refused(deed):
    try:
        deed()
    except OSError:
        return True
    return False

assert refused(lambda: open(hidden)), "read a file that was not declared"
assert open(shown).read() == "declared"
assert refused(lambda: open(shown, "w")), "wrote what is to be read"
assert refused(lambda: open(__file__, "w")), "wrote itself"
assert refused(lambda: socket.create_connection(("127.0.0.1", port), 2)), "reached another port"
assert "SECRET_OF_THE_HOST" not in os.environ
open("notes", "w").write("its own folder")

auth = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
ask = {"model": "m", "messages": [{"role": "user", "content": os.environ["PALAESTRA_TASK"]}]}
over = False
while not over:
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    reply = json.load(urlopen(Request(url, json.dumps(ask).encode(), auth)))
    action = {"action": reply["choices"][0]["message"]["content"]}
    url = os.environ["PALAESTRA_WORLD_URL"] + "/step"
    over = json.load(urlopen(Request(url, json.dumps(action).encode(), auth)))["over"]
"""


def roll_out(line: str, **options: Any) -> Episode:
    agent = CommandAgent(line=line, sandbox="bubblewrap", **options)
    session = Session(KEY, TASK, Stairs(), agent, {"agent": ScriptedModel(lambda _: "up")})
    return asyncio.run(session.run())


@walled
def test_a_program_in_a_sandbox_acts_and_reaches_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "shown").write_text("declared")
    (tmp_path / "hidden").write_text("secret")
    program = tmp_path / "prying.py"
    program.write_text(PRYING)
    for path in (shared / "shown", program):
        path.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as other:
        files = f"@{tmp_path / 'hidden'} @{shared / 'shown'} {other.getsockname()[1]}"
        episode = roll_out(f"{PYTHON} {program} {files}", mounts=str(shared))
    assert str(episode.outcome) == "success", episode.outcome.detail
    assert [step.call for step in episode.steps] == [0, 1, 2]
    assert not (tmp_path / "notes").exists()


@walled
def test_a_program_that_exceeds_a_sandbox_limit_crashes_with_the_reason() -> None:
    hungry = f"{PYTHON} -c 'x = bytearray(400_000_000); import time; time.sleep(20)'"
    outcome = roll_out(hungry, limits="memory=100000000").outcome
    assert (outcome.kind, outcome.owner) == ("crash", Owner.AGENT)
    assert "The sandbox ended it: memory" in outcome.detail


@walled
def test_a_program_without_an_end_is_ended_with_its_sandbox() -> None:
    started = time.monotonic()
    outcome = roll_out("sh -c 'sleep 300 & sleep 300'", seconds=0.5).outcome
    assert (outcome.kind, outcome.owner) == ("hang", Owner.AGENT)
    assert time.monotonic() - started < 60


def test_invalid_sandbox_options_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for options in (
        {"sandbox": "nowhere"},
        {"sandbox": "unsafe"},  # it keeps programs from no host
        {"sandbox": "bubblewrap", "mounts": [str(tmp_path / "nothing")]},
        {"sandbox": "bubblewrap", "limits": ["memory=much"]},
        {"mounts": [str(tmp_path)]},
    ):
        with pytest.raises(PalaestraError):
            make_agent(name_of("true", **options))
    with pytest.raises(InputError, match=r"agent\.command"):
        load("quick", ["agent.sandbox=bubblewrap"])


@walled
def test_a_sandbox_stands_in_the_name_of_the_agent() -> None:
    recipe = load(
        "quick", ["agent.command=true & x", "agent.sandbox=auto", 'agent.mounts=["/opt"]']
    )
    assert recipe.agent.chosen == "command?line=true %26 x&sandbox=auto&mounts=/opt"
    agent = make_agent(recipe.agent.chosen)
    assert isinstance(agent, CommandAgent)
    assert agent._sandbox is not None and agent._sandbox.mounts == ("/opt",)


@walled
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_program_of_node_acts_in_a_sandbox(tmp_path: Path) -> None:
    """It reads OpenSSL's settings when it starts, and ends where it may not."""
    program = tmp_path / "up.mjs"
    program.write_text(CLIMBING)
    program.chmod(0o644)
    episode = roll_out(f"node {program}", seconds=120.0)
    assert str(episode.outcome) == "success", episode.outcome.detail


CLIMBING = """
const { PALAESTRA_WORLD_URL: url, PALAESTRA_TOKEN: token } = process.env;
let over = false;
while (!over) {
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(`${url}/step`, { method: "POST", headers, body: '{"action": "up"}' });
  over = (await answer.json()).over;
}
"""
