"""Goal-conditioned values of recorded states, against hand computations and their own equation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.critics.goal_values import Move, fit_goal_values

STATES = st.sampled_from("abcd")


def achieving(state: str, then: str) -> Move:
    """States achieve themselves."""
    return Move(state, then, then)


EPISODES = st.lists(
    st.lists(st.builds(achieving, STATES, STATES), min_size=1, max_size=6), min_size=1, max_size=5
)


def value(fitted, state: str, goal: str, member: int = 0) -> float:
    return float(fitted.values[member, fitted.states[state], fitted.goals[goal]])


def test_a_chain_is_worth_the_discount_to_the_distance() -> None:
    chain = [achieving("a", "b"), achieving("b", "c")]
    fitted = fit_goal_values([chain], discount=0.5)
    assert value(fitted, "b", "c") == pytest.approx(2.0)  # 1 now, and at each step after it
    assert value(fitted, "a", "c") == pytest.approx(1.0)
    assert value(fitted, "c", "b") == 0.0  # nothing is recorded from there
    assert fitted.advantage(chain[0], "c") == pytest.approx(0.0)


def test_an_action_has_an_advantage_over_the_mean_of_those_recorded() -> None:
    good, bad = achieving("a", "b"), achieving("a", "c")
    fitted = fit_goal_values([[good], [bad], [bad], [bad]], discount=0.5)
    assert value(fitted, "a", "b") == pytest.approx(2 / 4)
    assert fitted.advantage(good, "b") == pytest.approx(2 - 0.5)
    assert fitted.advantage(bad, "b") == pytest.approx(-0.5)


def test_an_expectile_leans_towards_the_best_action() -> None:
    good, bad = achieving("a", "b"), achieving("a", "c")
    fitted = fit_goal_values([[good], [bad]], discount=0.5, expectile=0.9)
    assert value(fitted, "a", "b") == pytest.approx(0.9 * 2, abs=1e-5)


def test_members_see_other_samples_of_the_episodes() -> None:
    record = [[achieving("a", "b")], [achieving("a", "c")]] * 8
    fitted = fit_goal_values(record, discount=0.5, members=5)
    assert fitted.deviation("a", "b") > 0
    assert fitted.deviation("b", "c") == 0.0  # no member knows anything of it
    again = fit_goal_values(record, discount=0.5, members=5)
    assert torch.equal(fitted.values, again.values)
    assert fit_goal_values(record, discount=0.5).deviation("a", "b") == 0.0


@settings(deadline=None)
@given(EPISODES, st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.3, 0.5, 0.8]))
def test_values_solve_their_equation_and_are_bounded(episodes, discount, expectile) -> None:
    fitted = fit_goal_values(episodes, discount=discount, expectile=expectile)
    most = 1 / (1 - discount)
    assert (fitted.values >= 0).all() and (fitted.values <= most + 1e-9).all()
    moves = [move for episode in episodes for move in episode]
    for goal in fitted.goals:
        for state in {move.state for move in moves}:
            gaps = [fitted.advantage(move, goal) for move in moves if move.state == state]
            pull = sum(gap * (expectile if gap > 0 else 1 - expectile) for gap in gaps)
            assert pull == pytest.approx(0.0, abs=1e-3)
