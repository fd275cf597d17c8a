"""Beliefs about a partner: Bayes' rule by hand, and what the agent is shown, asked and told."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.beliefs import Belief, BeliefsAgent
from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.models.scripted.planner import PlannerCompetence, PlannerModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment


def test_a_belief_follows_bayes_rule() -> None:
    belief = Belief()
    belief.correct("go", "wait")  # the first action: habit has predicted nothing yet
    assert (belief.reason, belief.habit, belief.predicted("go")) == (0.5, "wait", "go")
    belief.correct("go", "wait")  # 0.5 * 0.2 against 0.5 * 0.8
    assert belief.reason == pytest.approx(0.2) and belief.predicted("go") == "wait"
    belief.correct("go", "go")  # 0.2 * 0.8 against 0.8 * 0.2
    assert belief.reason == pytest.approx(0.5) and belief.predicted("go") == "go"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))))
def test_a_belief_stays_a_probability_and_evidence_of_both_changes_nothing(
    rounds: list[tuple[str, str]],
) -> None:
    belief = Belief()
    for reasoned, did in rounds:
        before, habit = belief.reason, belief.habit
        belief.correct(reasoned, did)
        assert 0 < belief.reason < 1
        if habit is None or (did == reasoned) == (did == habit):
            assert belief.reason == pytest.approx(before)


def play(agents: dict[str, Agent], models: dict[str, Model], index: int = 0) -> Episode:
    task = tasks("boxes/2:each").task(Split.TRAIN, index)
    world = LocalEnvironment(make("boxes/2:each"))
    session = Session(Key("test", 0), task, world, Seats(agents), models, budget=Budget(turns=60))
    return asyncio.run(session.run())


def test_what_is_expected_of_a_lazy_partner_is_corrected() -> None:
    lazy = PlannerModel(DirectAgent(), competence=PlannerCompetence(active=0.0))
    agents: dict[str, Agent] = {
        "robot1": BeliefsAgent(partner="robot2"),
        "robot2": DirectAgent(),
    }
    planner = PlannerModel(DirectAgent())
    episode = play(agents, {"agent": planner, "robot2": lazy})
    prompts = [c.messages[-1].text for c in episode.calls if c.role == "robot1"]
    expected = [text.splitlines()[-1] for text in prompts]
    assert expected[0] != "robot2: wait"  # it could bring boxes nearer
    assert set(expected[4:]) == {"robot2: wait"}
    roles = {call.role for call in episode.calls}
    assert roles == {"robot1", "robot1/belief", "robot1/verifier", "robot2"}


def test_an_action_that_the_verifier_rejects_is_asked_for_once_more() -> None:
    planner = PlannerModel(DirectAgent())
    never = ScriptedModel(lambda messages: "No, it collides.")
    agents: dict[str, Agent] = {
        "robot1": BeliefsAgent(partner="robot2", corrects=False),
        "robot2": DirectAgent(),
    }
    episode = play(agents, {"agent": planner, "robot1/verifier": never})
    own = [call for call in episode.calls if call.role == "robot1"]
    turns = [step for step in episode.steps if step.before.turn == "robot1"]
    assert len(own) == 2 * len(turns)
    assert own[1].messages[-1].text.startswith("That is not possible")
    asked = [c.messages[-1].text for c in episode.calls if c.role == "robot1/belief"]
    assert not any("took last" in text for text in asked)  # nothing to correct


def test_a_partner_must_be_named() -> None:
    with pytest.raises(InputError, match="partner"):
        make_agent("beliefs")
