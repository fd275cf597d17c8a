"""Procedures: a state machine in a file limits the allowed actions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palaestra.agents.procedure import ProcedureAgent
from palaestra.agents.registry import make_agent
from palaestra.agents.state_machine import load_procedure
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import run_episode

RECIPES = Path(__file__).parents[2] / "recipes" / "procedures"
STAIRS = r"""
title = "climb"
start = "low"
read = ['on step (?P<place>\d+) of (?P<height>\d+)']
[states.low]
prompt = "You stand on $place of $height."
actions = ["up"]
next = [{ when = "step 1", to = "middle" }]
[states.middle]
do = "up"
next = [{ when = "step 2", to = "asking" }]
[states.asking]
actions = ["up", "fall"]
next = [{ ask = "Are you tired of $height steps?", to = "rest" }]
[states.rest]
do = "fall"
"""


def walked(tmp_path: Path, *replies: str) -> Episode:
    file = tmp_path / "stairs.toml"
    file.write_text(STAIRS)
    rest = iter(replies)
    return run_episode(ProcedureAgent(file=file), ScriptedModel(lambda _: next(rest)))


def test_the_model_is_asked_only_where_the_procedure_leaves_something_open(tmp_path: Path) -> None:
    episode = walked(tmp_path, "up", "No.", "up")
    assert episode.outcome.solved and [call.role for call in episode.calls] == [
        "agent",
        "navigator",
        "agent",
    ]
    assert "You stand on 0 of 3.\nAllowed here: up." in episode.calls[0].messages[-1].text
    assert "Are you tired of 3 steps?" in episode.calls[1].messages[-1].text


def test_a_branch_is_answered_by_the_model(tmp_path: Path) -> None:
    episode = walked(tmp_path, "up", "Yes, very.")
    assert [step.action.text for step in episode.steps] == ["up", "up", "fall"]


def test_what_a_state_does_not_allow_never_reaches_the_world(tmp_path: Path) -> None:
    episode = walked(tmp_path, "fall", "UP", "up", "no", "up")
    assert episode.outcome.solved and episode.invalid_turns == 0
    assert "That is not allowed here. Allowed: up." in episode.calls[1].messages[-1].text
    refused = walked(tmp_path, "fall", "fall", "fall")
    assert str(refused.outcome) == "error(unlawful, agent)" and not refused.steps


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('to = "middle"', 'to = "midle"', "the unknown state 'midle'; use one of: low, middle"),
        ('start = "low"', 'start = "high"', "start leads to the unknown state 'high'"),
        ('when = "step 1"', 'when = "step ("', "'states.low.next.0.when'"),
        ("prompt =", "promt =", "'states.low.promt'"),
        ('{ when = "step 1", ', "{ ", "needs either 'when' or 'ask'"),
        ('do = "fall"', 'do = "fall"\nprompt = "x"', "without asking"),
        ("title =", "title", "cannot be read"),
    ],
)
def test_a_mistake_in_a_procedure_is_reported(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(STAIRS.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_procedure(file)
    assert words in str(caught.value) and str(file) in str(caught.value)


def test_a_procedure_needs_a_file() -> None:
    with pytest.raises(InputError, match=r"needs file: write 'procedure\?file=…'"):
        make_agent("procedure")
    with pytest.raises(InputError, match=r"nowhere\.toml' cannot be read"):
        make_agent("procedure?file=nowhere.toml")


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.toml")), ids=lambda file: file.stem)
def test_an_example_is_walked_to_its_end_by_who_knows_the_way(file: Path) -> None:
    id = file.read_text().partition("--env ")[2].split()[0]
    environment = registry.make(id)
    world, agent = LocalEnvironment(environment), make_agent(f"procedure?file={file}")
    models = {"agent": ExpertModel(agent).for_environment(world)}
    task = type(environment).tasks(id).task(Split.TEST, 0)

    budget = Budget(turns=environment.spec.typical_turns)
    session = Session(Key("test", 0), task, world, agent, models, budget=budget)
    assert asyncio.run(session.run()).outcome.solved
