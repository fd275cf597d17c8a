"""Which call said what was done: in searches too, where the last call before a step need not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.learning import batch
from palaestra.learning.credit.turns import return_to_go
from palaestra.learning.examples.replies import replies
from palaestra.learning.proposals import proposals
from palaestra.learning.rewards import Shaping
from palaestra.rollout.worlds import LocalWorld
from tests.agents.fork import Fork, Valuing, Wavering

AGENTS = [
    "best_of_n?n=4&depth=2",
    "beam?width=2&samples=4&depth=2",
    "best_first?budget=4&samples=4&scorer=judge",
    "lats?iterations=4&samples=4",
    "adaptive?agree=1&samples=4&budget=4",
    "vote?samples=4",
    "direct",
]


def lived(agent: str, member: int = 0, left: float = 0.5) -> Episode:
    models = {"agent": Wavering(left, tokens=True), "judge": Valuing()}
    session = Session(
        Key("train", 0, member), Task("train/0", "fork", 0), LocalWorld(Fork()),
        make_agent(agent), models, budget=Budget(turns=8),
    )  # fmt: skip
    return asyncio.run(session.live())


@pytest.mark.parametrize("agent", AGENTS)
def test_each_step_has_the_call_that_said_its_action_in_its_state(agent: str) -> None:
    others = 0
    for member in range(4):
        episode = lived(agent, member)
        seen = ["a fork", *(step.transition.observation.text for step in episode.steps)]
        for step, by in zip(episode.steps, proposals(episode), strict=True):
            assert by is not None and step.call is not None and by <= step.call
            told = episode.graph.conversation(by)
            assert told[-1].content.strip() == step.action.text
            assert [m.content for m in told[:-1] if m.role == "user"] == seen[: step.index + 1]
            others += by != step.call
    assert (others > 0) == (agent != "direct")


def test_of_an_agent_that_asks_otherwise_the_last_call_is_all_that_is_known() -> None:
    episode = lived("react", left=0.0)
    tried = replace(episode, usage=replace(episode.usage, tried=5))
    assert proposals(tried) == proposals(episode) == tuple(s.call for s in episode.steps)
    assert proposals(replace(tried, calls=(), steps=())) == ()


def test_rewards_and_advantages_of_a_search_fall_to_what_was_done() -> None:
    greedy = [lived("beam?width=1&depth=1&samples=6", member, left=0.5) for member in range(4)]
    assert {episode.steps[0].action.text for episode in greedy} == {"left"}  # it pays at once
    right = [replace(lived("direct", 4 + m, left=0.0), agent="beam") for m in range(2)]
    shaping = Shaping(most_turns=8, turn_cost=0.0, invalid_cost=0.0, world=1.0)
    trajectories = batch.trajectories([*greedy, *right], shaping, "wavering")
    credit = return_to_go(trajectories, gamma=0.0)
    advantages = batch.per_call(trajectories, credit.advantages)
    for episode, trajectory in zip(greedy, trajectories, strict=False):
        first = proposals(episode)[0]
        (paid,) = [turn for turn in trajectory.turns if turn.reward > 0]
        assert (paid.call, paid.reward) == (first, 0.2) and paid.anchor == ""
        assert episode.calls[paid.call].reply.content == "left"
        # what was proposed in the same state and not done has the same anchor, and earns nothing
        before = [t for t in trajectory.turns if t.call <= (episode.steps[0].call or 0)]
        assert {turn.anchor for turn in before if turn.step == 0} == {""}
        own = {turn.call: advantages[episode.key, turn.call][0] for turn in trajectory.turns}
        assert max(own, key=lambda call: own[call]) == first
        assert own[first] > 0
        acted = [reply.call.index for reply in replies(episode, "wavering") if reply.steps]
        assert acted == list(proposals(episode))
