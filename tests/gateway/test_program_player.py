"""A program from outside plays for one player, against an agent in this process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.core.budget import Budget
from palaestra.core.environment import Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.gateway.program_agents import CommandAgent
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.agents.test_players import Nim
from tests.core.games import Ring
from tests.core.test_game import seated

PROGRAM = """
import json, os, sys
from urllib.request import Request, urlopen

headers = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"],
           "Content-Type": "application/json"}

def post(url, body):
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)

over, turns = False, 0
while not over:
    said = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {
        "model": "any", "messages": [{"role": "user", "content": f"turn {turns}"}]})
    reply = said["choices"][0]["message"]["content"]
    step = post(os.environ["PALAESTRA_WORLD_URL"] + "/step", {"action": reply})
    over, turns = step["over"], turns + 1
    if turns == LAST:
        sys.exit(3)
"""


def play(environment: Environment, agents: Seats, budget: Budget = Budget()) -> Episode:
    session = Session(
        Key("test", 0, 0),
        TaskSet("game").task(Split.TRAIN, 0),
        LocalEnvironment(environment),
        agents,
        {"agent": ScriptedModel(lambda messages: "1")},
        player_budget=budget,
    )
    return asyncio.run(session.run())


def program(folder: Path, last: int) -> CommandAgent:
    """Return a program that exits with an error after `last` turns."""
    file = folder / "program.py"
    file.write_text(PROGRAM.replace("LAST", str(last)))
    return CommandAgent(line=f"{sys.executable} {file}")


def test_a_program_plays_for_one_player(tmp_path: Path) -> None:
    episode = play(Nim(), seated(white=program(tmp_path, 99), black=DirectAgent()))
    assert [call.role for call in episode.calls] == ["white", "black"] * 2 + ["white"]
    assert [call.messages[-1].text for call in episode.calls[::2]] == ["turn 0", "turn 1", "turn 2"]
    assert episode.results == {"white": 1.0, "black": -1.0}
    assert all(step.call == index for index, step in enumerate(episode.steps))


def test_a_program_that_dies_forfeits_and_the_others_play_on(tmp_path: Path) -> None:
    dying = program(tmp_path, 1)
    episode = play(Ring(), seated(ann=dying, bob=DirectAgent(), cat=DirectAgent()))
    assert episode.players["ann"].outcome.kind == "crash"
    assert "exit code 3" in episode.players["ann"].outcome.detail
    assert not episode.players["bob"].forfeited and len(episode.steps) == 9
