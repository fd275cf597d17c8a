"""Advised sessions: who acts in each turn, what is recorded, and that a cut changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.agents.vote import VoteAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import ADVISOR, Episode, Event, Step
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.advised_session import Advice, AdvisedSession, Mixture, Takeover, Turn
from tests.core.small import KEY, TASK, Counted, Journal, Stairs, renderer

LOST = ["huh"] * 20  # what the policy replies, turn by turn


def episode(
    advice: Advice,
    script: Sequence[str] = LOST,
    *,
    world: Stairs | None = None,
    journal: Journal | None = None,
    past: Sequence[Event] = (),
    seed: int = 0,
    agent: DirectAgent | None = None,
) -> Episode:
    """An episode in which the advisor goes up, and the policy follows a script."""
    world, agent = world or Stairs(height=4), agent or DirectAgent()
    expert = ExpertModel(agent, renderer()).for_environment(world)
    models = {"agent": Counted(list(script), renderer=renderer()), ADVISOR: expert}
    session = AdvisedSession(
        KEY, TASK, world, agent, models,
        advice=advice, budget=Budget(turns=12), seed=seed, journal=journal, past=past,
    )  # fmt: skip
    return asyncio.run(session.run())


def actors(made: Episode) -> str:
    """Who acted, turn by turn: a for the advisor, p for the policy."""
    roles = [made.calls[step.call].role for step in made.steps if step.call is not None]
    return "".join("a" if role == ADVISOR else "p" for role in roles)


def timeless(made: Episode) -> tuple[list[Call], list[Step]]:
    """What happened, without how long it took."""
    return (
        [replace(call, seconds=0.0) for call in made.calls],
        [replace(step, seconds=0.0) for step in made.steps],
    )


class Deaf(Stairs):
    """Stairs whose expert is at a loss on the first step."""

    async def oracle(self) -> list[Action]:
        return [] if self.place == 0 else await super().oracle()


@pytest.mark.parametrize(
    ("takeover", "script", "expected"),
    [
        (Takeover(1, 1), LOST, "papapapa"),
        (Takeover(2, 1), LOST, "ppappappappa"),
        (Takeover(2, 2), LOST, "ppaappaa"),
        (Takeover(3, None), LOST, "pppaaaa"),
        (Takeover(2, 1), ["up", "huh", "up", "huh", "up", "up"], "pppppp"),  # never two in a row
    ],
)
def test_a_takeover_begins_after_differing_actions_and_ends_after_its_turns(
    takeover: Takeover, script: list[str], expected: str
) -> None:
    made = episode(takeover, script)
    assert actors(made) == expected
    assert made.outcome.solved


def test_the_advisor_is_asked_in_every_turn_and_the_policy_where_it_acts() -> None:
    made = episode(Takeover(1, 1))
    roles = [call.role for call in made.calls]
    assert roles == [ADVISOR, "agent", ADVISOR] * 4
    assert {call.policy for call in made.calls if call.role == ADVISOR} == {"expert"}


def test_advice_is_read_after_the_tokens_that_the_policy_sampled() -> None:
    made = episode(Takeover(2, 1))
    advice = [call for call in made.calls if call.role == ADVISOR]
    replies = [call for call in made.calls if call.role == "agent"]
    assert [call.parent for call in advice[:3]] == [None, replies[0].index, replies[1].index]
    for one in advice[1:3]:
        assert made.graph.path(one.index)[:-1] == made.graph.path(one.parent or 0)
    after = replies[2]  # the policy goes on after advice that acted
    assert after.parent == replies[1].index
    assert "up" in [message.text for message in after.messages]


@given(st.floats(0, 1), st.integers(0, 50))
def test_a_mixture_is_one_of_turns_and_the_same_for_the_same_seed(p: float, seed: int) -> None:
    def acted(seed: int) -> list[bool]:
        rngs = [random.Random(f"{seed}/{turn}") for turn in range(200)]
        return [Mixture(p).acts([], rng) for rng in rngs]

    found = acted(seed)
    assert found == acted(seed)
    assert abs(sum(found) / 200 - p) < 0.18  # five standard errors


@pytest.mark.parametrize("advice", [Mixture(0.4), Takeover(2, 1)], ids=["mixture", "takeover"])
def test_an_episode_cut_after_any_event_ends_as_if_it_had_not_been(advice: Advice) -> None:
    script = ["huh", "up", "huh", "huh", "up", "huh", *LOST]
    journal = Journal()
    whole = episode(advice, script, world=Deaf(height=4), journal=journal, seed=3)
    assert {"a", "p"} == set(actors(whole))
    for cut in range(len(journal.events) + 1):
        again = episode(advice, script, world=Deaf(height=4), past=journal.events[:cut], seed=3)
        assert actors(again) == actors(whole)
        assert timeless(again) == timeless(whole)


def test_where_the_expert_is_at_a_loss_the_policy_acts() -> None:
    made = episode(Mixture(0.999), ["up", *LOST], world=Deaf(height=2))
    assert actors(made) == "pa"
    assert made.outcome.solved


def test_a_takeover_depends_on_past_turns_alone() -> None:
    past: list[Turn] = ["differed", "agreed", "differed", "differed"]
    takeover = Takeover(2, 3)
    assert takeover.acts(past, random.Random(0))
    assert not takeover.acts(past[:3], random.Random(0))
    assert takeover.acts([*past, "advised", "advised"], random.Random(0))
    assert not takeover.acts([*past, "advised", "advised", "advised"], random.Random(0))


def test_an_agent_that_asks_for_several_replies_is_refused() -> None:
    world = Stairs()
    agent = VoteAgent()
    models = {"agent": Counted(LOST, renderer=renderer()), ADVISOR: ExpertModel(agent, renderer())}
    session = AdvisedSession(
        KEY, TASK, world, agent, models, advice=Mixture(0.5), budget=Budget(turns=3)
    )
    with pytest.raises(InputError, match="one reply of the role 'agent' per turn"):
        asyncio.run(session.run())
