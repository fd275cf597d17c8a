"""Several actions per reply: what is taken of it, what is read then, and whose the rewards are."""

from __future__ import annotations

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.learning.data.rewards import Shaping
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer, run_episode

PROGRESS = Shaping(10, {"progress": 1.0, "invalid": -1.0})


def test_the_lines_of_a_reply_are_taken_in_order_and_all_are_its_own() -> None:
    model = ScriptedModel(["up\nup", "up\nup\nup"], renderer=renderer())
    made = run_episode(make_agent("direct?actions=2"), model, Stairs(height=4))
    assert made.outcome.solved
    assert [step.action.text for step in made.steps] == ["up"] * 4  # the fifth is beyond the limit
    assert [step.call for step in made.steps] == [0, 0, 1, 1]
    seen = made.calls[1].messages[-1].text
    assert seen == "You are on step 1 of 4.\nYou are on step 2 of 4."
    turns = PROGRESS.trajectory(made, model.name).turns
    assert [turn.reward for turn in turns] == [0.5, 0.5]


def test_an_invalid_action_ends_what_is_taken_of_a_reply() -> None:
    model = ScriptedModel(["up\nhuh\nup", "up\n\nup"], renderer=renderer())
    made = run_episode(DirectAgent(actions=3), model, Stairs(height=3))
    assert [step.action.text for step in made.steps] == ["up", "huh", "up", "up"]
    assert [turn.reward for turn in PROGRESS.trajectory(made, model.name).turns] == pytest.approx(
        [1 / 3 - 1, 2 / 3]
    )


def test_an_empty_reply_is_one_invalid_action() -> None:
    made = run_episode(DirectAgent(actions=2), ScriptedModel(["\n"] * 2), Stairs(), Budget(turns=2))
    assert [step.transition.valid for step in made.steps] == [False, False]


def test_the_expert_says_as_many_actions_as_may_be_taken() -> None:
    world, agent = Stairs(height=5), DirectAgent(actions=2)
    made = run_episode(agent, ExpertModel(agent, renderer()).for_environment(world), world)
    assert [call.reply.text for call in made.calls] == ["up\nup", "up\nup", "up"]
    assert "up to 2 actions, one per line" in made.calls[0].messages[0].text


def test_one_action_per_reply_is_the_whole_reply_as_before() -> None:
    made = run_episode(DirectAgent(), ScriptedModel(["up\nup"] * 2), Stairs(), Budget(turns=2))
    assert made.steps[0].action.text == "up\nup"
    assert DirectAgent().answer([], [Action("up"), Action("down")]) == "up"


def test_no_action_per_reply_is_refused() -> None:
    with pytest.raises(InputError, match="actions"):
        make_agent("direct?actions=0")
