"""Counterfactual attribution: exact by the oracle, sampled by random actions and by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import Message
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make
from palaestra.evaluation.attribution.base import Ending
from palaestra.evaluation.attribution.counterfactual import (
    Label,
    labels,
    largest_drop,
    losing_turn,
)
from palaestra.evaluation.attribution.state_values import (
    Value,
    oracle_values,
    policy_values,
    random_values,
)
from palaestra.evaluation.attribution.turn_replay import TurnReplay
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from tests.evaluation.attribution.worlds import LOOKUP, PARCEL, roll_out, worlds

WRONG = "send('p-1')"


def valued(episode: Episode, turns: int = 20) -> list[Value]:
    with TurnReplay.of(episode, worlds) as replay:
        return oracle_values(replay, turns)


@pytest.mark.parametrize("environment", ["parcels", "shapeless"])
def test_the_first_action_that_cannot_be_undone_lost_the_episode(environment: str) -> None:
    episode = roll_out((LOOKUP, WRONG, PARCEL, "status()", "finish()"), environment=environment)
    found = losing_turn(episode, valued(episode))
    assert (found.ending, found.turn, found.exact) == (Ending.TURN, 1, True)
    assert found.scores == (1.0, 1.0, 0.0, 0.0, 0.0, 0.0)


def test_detours_before_an_error_are_not_blamed() -> None:
    episode = roll_out(("lookup('Nobody')", "status()", LOOKUP, "gibberish", WRONG, "finish()"))
    assert losing_turn(episode, valued(episode)).turn == 4


def test_giving_up_while_the_task_can_be_solved_is_distinguished() -> None:
    episode = roll_out((LOOKUP, PARCEL))
    found = losing_turn(episode, valued(episode))
    assert (found.ending, found.turn) == (Ending.GAVE_UP, None)


def test_wasting_the_turns_loses_at_the_one_too_many() -> None:
    episode = roll_out(("status()",) * 6, limit=6)
    found = losing_turn(episode, valued(episode, turns=6))
    assert found.turn == 2  # four of six turns are needed, so the third wasted one is fatal


def test_a_task_without_a_plan_was_lost_before_the_first_turn() -> None:
    episode = roll_out((LOOKUP, PARCEL), limit=2)
    assert losing_turn(episode, valued(episode, turns=2)).ending is Ending.START


def test_labels_follow_the_exact_values_and_errors_propagate() -> None:
    episode = roll_out(("status()", "lookup('{customer}')", WRONG, "status()", "finish()"))
    assert labels(valued(episode)) == [
        Label.NEUTRAL,
        Label.USEFUL,
        Label.WRONG,
        Label.WRONG,
        Label.WRONG,
    ]


def test_a_world_without_an_oracle_reports_it() -> None:
    episode = umbrella("take")
    world = make("minigrid/Empty-5x5")
    with pytest.raises(CapabilityMissing, match="no oracle"):
        oracle_values(TurnReplay(episode, world), 8)


def test_values_need_one_state_more_than_turns() -> None:
    with pytest.raises(ValueError, match="one value per state"):
        losing_turn(roll_out((LOOKUP,)), [Value(1, 1)])


def test_chance_finds_the_only_choice_that_matters() -> None:
    wrong = "leave" if "rain" in first_seen() else "take"
    episode = umbrella(wrong)
    with TurnReplay.of(episode, make) as replay:
        values = random_values(replay, 8, samples=24)
    found = largest_drop(episode, values, "chance")
    assert (found.turn, found.exact) == (0, False)
    assert all(value.rate == 0 for value in values[1:])
    assert 0.2 < values[0].rate < 0.8


def test_a_rate_that_never_falls_blames_no_one() -> None:
    episode = roll_out((LOOKUP, PARCEL))
    found = largest_drop(episode, [Value(0, 8)] * 3, "chance")
    assert (found.ending, found.turn) == (Ending.UNKNOWN, None)


def test_an_overlap_of_intervals_is_reported() -> None:
    episode = roll_out((LOOKUP, PARCEL))
    found = largest_drop(episode, [Value(2, 4), Value(1, 4), Value(1, 4)], "chance")
    assert "overlap" in found.reason


# ── a policy that goes on ────────────────────────────────────────────────────


def test_a_policy_goes_on_from_each_recorded_turn() -> None:
    """It would have taken the right thing on the first day, and cannot fix it later."""
    right = "take" if "rain" in first_seen() else "leave"
    wrong = "leave" if right == "take" else "take"
    recorded = asyncio.run(run_episode(lambda messages: wrong))
    values = asyncio.run(policy_values(rollout(lambda messages: right), recorded, 2))
    assert [value and value.rate for value in values] == [1.0] + [0.0] * len(recorded.steps)
    found = largest_drop(recorded, values, "policy")
    assert (found.turn, found.agent) == (0, "agent")


def test_another_agent_than_the_recorded_one_is_refused() -> None:
    recorded = asyncio.run(run_episode(lambda messages: "take"))
    other = rollout(lambda messages: "take", DirectAgent(history=0))
    with pytest.raises(InputError, match="use the recorded agent and model"):
        asyncio.run(policy_values(other, recorded, 1))


def rollout(script: object, agent: DirectAgent | None = None) -> Rollout:
    async def world(environment: str) -> AsyncEnvironment:
        return LocalEnvironment(make(environment))

    assert callable(script)

    def output(messages: Sequence[Message]) -> str:
        return str(script(messages))

    return Rollout(agent or DirectAgent(), world, {"agent": ScriptedModel(output)})


async def run_episode(script: object) -> Episode:
    task = TaskSet("probe/umbrella-8").task(Split.TRAIN, 0)
    return (await rollout(script).run([Job(Key("made", 0), task)]))[0]


def first_seen() -> str:
    return make("probe/umbrella-8").reset(TaskSet("probe/umbrella-8").task(Split.TRAIN, 0)).text


def umbrella(word: str) -> Episode:
    return asyncio.run(run_episode(lambda messages: word))
