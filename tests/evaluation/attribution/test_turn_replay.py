"""Replays: any state of a recorded episode, or a sentence that says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.environment import Action, Observation
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.evaluation.attribution.turn_replay import TurnReplay
from tests.evaluation.attribution.worlds import LOOKUP, RIGHT, Parcels, roll_out, worlds


@pytest.mark.parametrize("environment", ["parcels", "shapeless"])
def test_every_state_can_be_visited_in_any_order(environment: str) -> None:
    episode = roll_out(RIGHT, environment=environment)
    with TurnReplay.of(episode, worlds) as replay:
        for turn in (2, 0, 4, 1, 3, 0):
            world = replay.at(turn)
            if turn < len(episode.steps):
                assert world.state_key() == episode.steps[turn].before.state_key
            replay.act(Action("send('p-0')"))  # what is done in between leaves no trace


def test_with_snapshots_each_recorded_action_is_done_once() -> None:
    with TurnReplay.of(roll_out(RIGHT), worlds) as replay:
        for turn in (4, 3, 2, 4):
            replay.at(turn)
        assert replay.actions == len(RIGHT)


def test_a_world_that_never_repeats_itself_is_refused() -> None:
    with pytest.raises(InputError, match="not deterministic"):
        TurnReplay.of(roll_out(RIGHT, environment="lottery"), worlds)


def test_a_record_that_does_not_fit_the_world_is_refused() -> None:
    episode = roll_out(RIGHT)
    step = episode.steps[1]
    other = replace(step, transition=replace(step.transition, observation=Observation("parcel x")))
    changed = replace(episode, steps=(episode.steps[0], other, *episode.steps[2:]))
    with (
        TurnReplay.of(changed, worlds) as replay,
        pytest.raises(InputError, match=r"Turn 2 .*cannot be replayed"),
    ):
        replay.at(4)


def test_an_episode_that_never_began_is_refused() -> None:
    with pytest.raises(InputError, match="no first observation"):
        TurnReplay.of(replace(roll_out((LOOKUP,)), observation=None), worlds)


def test_a_turn_that_does_not_exist_is_refused() -> None:
    with (
        TurnReplay.of(roll_out((LOOKUP,)), worlds) as replay,
        pytest.raises(InputError, match="state 2"),
    ):
        replay.at(2)


def test_a_world_that_breaks_is_an_environment_error() -> None:
    class Broken(Parcels):
        def verdict(self) -> bool | None:
            raise ZeroDivisionError

    with (
        TurnReplay.of(roll_out((LOOKUP,)), lambda _: Broken()) as replay,
        pytest.raises(EnvironmentFault, match="ZeroDivisionError"),
    ):
        replay.at(1)
