"""Credit goes to the call that proposed a step, which need not be the latest one before it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.learning.credit.turn_rewards import return_to_go
from palaestra.learning.data.examples.replies import replies
from palaestra.learning.data.examples.retokenizing import retokenized
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.loop import batch
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.codec import from_json
from palaestra.store.header import events_in_order
from tests.agents.fork import Fork, Valuing, Wavering
from tests.core.small import renderer

OLDER = (  # a step as it was stored before
    '{"index":1,"call":4,"action":{"text":"up","call":null},"transition":{"observation":'
    '{"text":"seen","images":[]},"reward":0.0,"terminated":false,"truncated":false,'
    '"success":false,"valid":true,"info":{},"rewards":{}},'
    '"before":{"state_key":null,"progress":null,"turn":null},"seconds":0.1}'
)

AGENTS = [
    "best_of_n?n=4&depth=2",
    "beam?width=2&samples=4&depth=2",
    "best_first?budget=4&samples=4&scorer=judge",
    "lats?iterations=4&samples=4",
    "adaptive?agree=1&samples=4&budget=4",
    "vote?samples=4",
    "direct",
]


def roll_out(agent: str, member: int = 0, left: float = 0.5) -> Episode:
    models = {"agent": Wavering(left, tokens=True), "judge": Valuing()}
    session = Session(
        Key("train", 0, member), Task("train/0", "fork", 0), LocalEnvironment(Fork()),
        make_agent(agent), models, budget=Budget(turns=8),
    )  # fmt: skip
    return asyncio.run(session.run())


@pytest.mark.parametrize("agent", AGENTS)
def test_each_step_has_the_call_that_said_its_action_in_its_state(agent: str) -> None:
    others = 0
    for member in range(4):
        episode = roll_out(agent, member)
        seen = ["a fork", *(step.transition.observation.text for step in episode.steps)]
        for step in episode.steps:
            by = step.call
            assert by is not None and by < step.calls_before
            conversation = episode.graph.conversation(by)
            assert conversation[-1].text.strip() == step.action.text
            assert [m.text for m in conversation[:-1] if m.role == "user"] == seen[: step.index + 1]
            others += by != step.calls_before - 1
    assert (others > 0) == (agent != "direct")


def latest(episode: Episode) -> Episode:
    """The episode as it was recorded before steps named the reply that proposed them."""
    steps = (replace(s, call=s.calls_before - 1, calls_made=None) for s in episode.steps)
    return replace(episode, steps=tuple(steps))


@pytest.mark.parametrize("agent", AGENTS)
def test_an_older_record_is_read_and_credited_by_the_latest_call_before_each_step(
    agent: str,
) -> None:
    episode = roll_out(agent)
    old = latest(episode)
    (read,) = from_json(Step, [OLDER])
    assert (read.call, read.calls_made, read.calls_before) == (4, None, 5)
    assert [s.calls_before for s in old.steps] == [s.calls_before for s in episode.steps]
    order = [(type(event), event.index) for event in events_in_order(episode)]
    assert [(type(event), event.index) for event in events_in_order(old)] == order
    shaping = Shaping(8, {"outcome": 1.0, "environment": 1.0}, {"outcome": {"turn_cost": 0.0}})
    turns = shaping.trajectory(old, "wavering").turns
    paid = [turn.call for turn in turns if turn.reward]
    own = [call.index for call in episode.calls if call.policy == "wavering"]
    for step in episode.steps:
        if step.transition.reward:  # no other step pays
            assert paid == [max(index for index in own if index < step.calls_before)]


def test_what_no_reply_of_the_policy_proposed_counts_for_its_latest_call_before_it() -> None:
    episode = roll_out("direct", left=1.0)
    assert episode.steps[0].transition.reward == 0.2
    silent = replace(episode, steps=tuple(replace(s, call=None) for s in episode.steps))
    shaping = Shaping(8, {"outcome": 1.0, "environment": 1.0}, {"outcome": {"turn_cost": 0.0}})
    assert shaping.trajectory(silent, "wavering") == shaping.trajectory(episode, "wavering")
    assert not any(reply.steps for reply in replies(silent, "wavering"))


def test_an_episode_rendered_again_keeps_who_proposed_what() -> None:
    episode = roll_out("beam?width=1&depth=1&samples=6&scorer=judge", left=0.5)
    rerendered = retokenized(episode, "learner", renderer())
    assert len(rerendered.calls) < len(episode.calls)  # the judge's are left out
    for step, before in zip(rerendered.steps, episode.steps, strict=True):
        assert step.call is not None and before.call is not None
        assert rerendered.calls[step.call].reply == episode.calls[before.call].reply
        assert step.calls_before == sum(
            call.role == "agent" for call in episode.calls[: before.calls_before]
        )


def test_rewards_and_advantages_of_a_search_fall_to_what_was_done() -> None:
    greedy = [roll_out("beam?width=1&depth=1&samples=6", member, left=0.5) for member in range(4)]
    assert {episode.steps[0].action.text for episode in greedy} == {"left"}  # it pays at once
    right = [replace(roll_out("direct", 4 + m, left=0.0), agent="beam") for m in range(2)]
    shaping = Shaping(8, {"outcome": 1.0, "environment": 1.0}, {"outcome": {"turn_cost": 0.0}})
    trajectories = batch.trajectories([*greedy, *right], shaping, "wavering")
    credit = return_to_go(trajectories, gamma=0.0)
    advantages = batch.per_call(trajectories, credit.advantages)
    for episode, trajectory in zip(greedy, trajectories, strict=False):
        first = episode.steps[0].call
        (paid,) = [turn for turn in trajectory.turns if turn.reward > 0]
        assert first is not None and (paid.call, paid.reward) == (first, 0.2) and paid.anchor == ""
        assert episode.calls[paid.call].reply.text == "left"
        # what was proposed in the same state and not done has the same anchor, and earns nothing
        before = [t for t in trajectory.turns if t.call < episode.steps[0].calls_before]
        assert {turn.anchor for turn in before if turn.step == 0} == {""}
        own = {turn.call: advantages[episode.key, turn.call][0] for turn in trajectory.turns}
        assert max(own, key=lambda call: own[call]) == first
        assert own[first] > 0
        acted = [reply.call.index for reply in replies(episode, "wavering") if reply.steps]
        assert acted == [step.call for step in episode.steps]
