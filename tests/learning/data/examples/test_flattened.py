"""Flattened teams: what several roles said, as the agent `chain` would have said it alone."""

import pytest

from palaestra.agents.chain_of_agents import ChainAgent, action_of
from palaestra.agents.direct import DirectAgent
from palaestra.agents.plan_and_execute import PlanAgent
from palaestra.agents.verify import VerifyAgent
from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.learning.data.examples.flattened import flattened
from palaestra.learning.data.rows import rows_of
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer, run_episode

LONG = Sampling(max_tokens=500)


def team_run(agent, height=3):
    """An episode in which one model speaks in all roles of an agent."""
    world = Stairs(height)
    model = ExpertModel(agent, renderer()).for_environment(world)
    return run_episode(agent, model, world, sampling=LONG)


def replies_of(example):
    """The trained replies of a row, as texts."""
    row = example.row
    found = {}
    for token, call, on in zip(row.tokens, row.calls, row.mask, strict=True):
        if on:
            found.setdefault(call, []).append(token)
    return [renderer().text(tokens) for tokens in found.values()]


def flat(episode):
    return flattened([episode], "expert", renderer(), Stairs.instructions)


def test_a_planners_words_stand_in_tags_before_the_action_that_they_led_to():
    (example,) = flat(team_run(PlanAgent()))
    assert replies_of(example) == [
        "<planner>1. up\n2. up\n3. up</planner><action>up</action>",
        "<action>up</action>",
        "<action>up</action>",
    ]


def test_what_a_verifier_says_after_an_action_opens_the_next_reply():
    (example,) = flat(team_run(VerifyAgent(), height=2))
    first, second = replies_of(example)
    thought = "<agent>Thought: up is the next step.\nAction: up</agent>"
    assert first == f"{thought}<verifier>Yes.</verifier><action>up</action>"
    assert second.startswith(f"<verifier>Next comes up.</verifier>{thought}<verifier>")


@pytest.mark.parametrize("agent", [PlanAgent(), PlanAgent(ask=False), VerifyAgent()])
def test_the_row_is_that_of_the_agent_chain_which_says_the_same(agent):
    (example,) = flat(team_run(agent))
    said = ScriptedModel(replies_of(example), renderer=renderer(), name="policy")
    alone = run_episode(ChainAgent(), said, Stairs(), sampling=LONG)
    (row,) = rows_of(alone, "policy")
    assert (example.row.tokens, example.row.mask) == (row.tokens, row.mask)
    assert alone.outcome.solved


def test_failures_are_left_out():
    episode = run_episode(
        PlanAgent(), ScriptedModel(lambda _: "fall", renderer=renderer(), name="expert"), Stairs()
    )
    assert not episode.outcome.solved
    assert flat(episode) == []


def test_one_role_alone_is_no_team():
    with pytest.raises(InputError, match="speaks alone"):
        flat(team_run(DirectAgent()))


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<planner>1. up</planner><action>up</action>", "up"),
        ("<action>down</action><action> up </action>", "up"),
        ("<action>up", "up"),
        (" up ", "up"),
    ],
)
def test_the_last_action_is_done(reply, action):
    assert action_of(reply) == action
