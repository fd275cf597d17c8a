"""Where several play, each player's turns are judged by that player's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.credit.compose import parse
from palaestra.learning.credit.per_player import JOINT, parts
from palaestra.learning.credit.returns import rloo
from palaestra.learning.credit.roles import spiral
from palaestra.learning.credit.rule import Credit, per_token
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, components
from tests.learning.credit.made import close, rollout, trajectories

SEATS = ["white", "black", "white"]
FED = sorted(components(Kind.CREDIT).keys() - JOINT - {"spiral", "malt"})


def game(white: float, *, member: int = 0, turns: Sequence[str] = SEATS) -> Trajectory:
    """White wins an amount of black; the rollout's own outcome is white's, whatever the turn."""
    return rollout(
        [0.0] * len(turns),
        outcome=white,
        tokens=2,
        member=member,
        slots={"outcomes": {"white": white, "black": -white}},
        role=list(turns),
    )


def by_turn(credit: Credit) -> list[list[float]]:
    """The advantage of each turn of two tokens, which must be the same for both."""
    for advantages in credit.advantages:
        assert bool((advantages[::2] == advantages[1::2]).all())
    return [advantages[::2].tolist() for advantages in credit.advantages]


@pytest.mark.parametrize("rule", ["rloo", "drgrpo", "grpo", "reinforce", "reinforce++", "running"])
def test_the_winner_is_credited_and_the_loser_blamed_whoever_moved_last(rule: str) -> None:
    found = by_turn(parse(rule)([game(1.0), game(-2.0, member=1)]))
    for (first, second, third), winner in zip(found, [1, -1], strict=True):
        assert first * winner > 0 and third * winner > 0
        assert second * winner < 0


def test_a_seat_is_compared_with_the_same_seat_of_the_group() -> None:
    pair = [game(1.0), game(-2.0, member=1)]
    assert by_turn(parse("rloo")(pair)) == [[3, -3, 3], [-3, 3, -3]]
    halved = by_turn(parse("0.5*rloo + 0*anchor")([with_anchors(t) for t in pair]))
    assert halved == [[1.5, -1.5, 1.5], [-1.5, 1.5, -1.5]]


def with_anchors(trajectory: Trajectory) -> Trajectory:
    turns = tuple(replace(t, anchor=f"{k}") for k, t in enumerate(trajectory.turns))
    return replace(trajectory, turns=turns)


def test_a_turn_s_own_rewards_count_for_the_one_who_spoke() -> None:
    clumsy = game(1.0)
    turns = (clumsy.turns[0], replace(clumsy.turns[1], reward=-0.25), clumsy.turns[2])
    pair = [replace(clumsy, turns=turns), game(1.0, member=1)]
    assert by_turn(parse("rloo")(pair)) == [[0, -0.25, 0], [0, 0.25, 0]]


def test_a_seat_that_only_one_game_reached_is_compared_with_no_one() -> None:
    """As when the first player's replies name no move until the game is over."""
    stuck = game(0.0, member=1, turns=["white"] * 3)
    assert by_turn(parse("rloo")([game(1.0), stuck])) == [[1, 0, 1], [-1, -1, -1]]
    apart = [game(0.0, turns=["white"]), game(0.0, member=1, turns=["black"])]
    assert by_turn(parse("rloo")(apart)) == [[0], [0]]


def test_a_speaker_who_is_no_player_is_judged_by_the_outcome_of_the_rollout() -> None:
    pair = [game(o, member=m, turns=["judge", "black"]) for m, o in enumerate([1.0, -1.0])]
    assert by_turn(parse("rloo")(pair)) == [[2, -2], [-2, 2]]


def test_a_plug_in_rule_sees_one_player_at_a_time() -> None:
    seen = by_turn(parse(f"{__name__}:outcome_of_one")([game(3.0)]))
    assert seen == [[3, -3, 3]]


def outcome_of_one(batch: Sequence[Trajectory]) -> Credit:
    assert all(len({turn.role for turn in t.turns}) == 1 and not t.outcomes for t in batch)
    return Credit([per_token(t, [t.total] * len(t.turns)) for t in batch])


@settings(max_examples=20)
@given(trajectories())
def test_spiral_reads_results_by_itself_and_gets_whole_rollouts(sampled: list[Trajectory]) -> None:
    direct, through = spiral(sampled), parse("spiral")(sampled)
    assert close(torch.cat(through.advantages), torch.cat(direct.advantages), 1e-12)
    assert through.state == direct.state


@pytest.mark.parametrize("name", FED)
@settings(max_examples=10)
@given(sampled=trajectories(), data=st.data())
def test_of_every_rule_a_part_is_judged_as_a_rollout_of_its_own(
    name: str, sampled: list[Trajectory], data: st.DataObject
) -> None:
    """One finite number per token, whatever the order of the batch."""
    order = data.draw(st.permutations(range(len(sampled))))
    straight = parse(name)(sampled)
    permuted = parse(name)([sampled[i] for i in order])
    expected = [straight.advantages[i] for i in order]
    for a, b in zip(permuted.advantages, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)
    has_targets = Need.VALUE in components(Kind.CREDIT)[name].needs
    assert (straight.returns is not None) == has_targets


@given(trajectories())
def test_parts_hold_every_turn_once(sampled: list[Trajectory]) -> None:
    places = [(part.rollout, k) for part in parts(sampled) for k in part.turns]
    assert sorted(places) == [(i, k) for i, t in enumerate(sampled) for k in range(len(t.turns))]
    for part in parts(sampled):
        whole = sampled[part.rollout]
        assert part.trajectory.turns == tuple(whole.turns[k] for k in part.turns)
        assert len({turn.role for turn in part.trajectory.turns}) == 1


@settings(max_examples=20)
@given(trajectories())
def test_without_results_per_player_nothing_is_taken_apart(sampled: list[Trajectory]) -> None:
    alone = [replace(t, outcomes={}) for t in sampled]
    through = parse("rloo")(alone)
    assert close(torch.cat(through.advantages), torch.cat(rloo(alone).advantages), 0.0)
