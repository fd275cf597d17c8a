"""A program with several agents tells by the model's name which of them speaks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.program_agents import CommandAgent
from palaestra.gateway.program_requests import role_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer

PROGRAM = """
import json, os
from urllib.request import Request, urlopen

def post(url, body, key="PALAESTRA_TOKEN"):
    headers = {"Authorization": "Bearer " + os.environ[key], "Content-Type": "application/json",
               "x-api-key": os.environ[key], "anthropic-version": "2023-06-01"}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)

openai, anthropic = os.environ["OPENAI_BASE_URL"], os.environ["ANTHROPIC_BASE_URL"]
over, turn = False, 0
while not over:
    turn += 1
    asked = [{"role": "user", "content": f"plan {turn}"}]
    post(openai + "/chat/completions", {"model": "palaestra/planner", "messages": asked})
    post(anthropic + "/v1/messages",
         {"model": "palaestra/critic", "max_tokens": 4, "messages": asked})
    post(openai + "/responses", {"model": "palaestra/critic", "input": f"again {turn}"})
    said = post(openai + "/chat/completions", {"model": "gpt-5", "messages": asked})
    reply = said["choices"][0]["message"]["content"]
    over = post(os.environ["PALAESTRA_WORLD_URL"] + "/step", {"action": reply})["over"]
"""


def run(tmp_path: Path, models: dict[str, Model]) -> Episode:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    session = Session(
        Key("test", 0, 0),
        TaskSet("corridor").task(Split.TRAIN, 0),
        Stairs(),
        CommandAgent(line=f"{sys.executable} {file}"),
        models,
    )
    return asyncio.run(session.run())


def test_roles_of_a_foreign_team_are_recorded_token_by_token(tmp_path: Path) -> None:
    acting = ScriptedModel(lambda messages: "up", name="acting", renderer=renderer())
    planning = ScriptedModel(lambda messages: "onwards", name="planning", renderer=renderer())
    episode = run(tmp_path, {"agent": acting, "planner": planning})
    assert episode.outcome.solved
    roles = ["planner", "critic", "critic", "agent"]
    assert [call.role for call in episode.calls] == roles * len(episode.steps)
    assert {c.role: c.policy for c in episode.calls} == {
        "planner": "planning", "critic": "acting", "agent": "acting",
    }  # fmt: skip
    assert all(call.completion and call.logprobs for call in episode.calls)
    assert [step.call for step in episode.steps] == [3 + 4 * n for n in range(len(episode.steps))]


def test_a_name_that_is_no_role_is_refused() -> None:
    assert role_of("palaestra") == role_of("gpt-5") == role_of("other/planner") == "agent"
    assert role_of("palaestra/planner") == "planner"
    for name in ("palaestra/", "palaestra/a/b", "palaestra/a b"):
        with pytest.raises(HTTPError, match="names no role; write palaestra/NAME"):
            role_of(name)
