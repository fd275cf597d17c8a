"""Ratings: the likelihood's maximum, intervals that cover, and refusals where none exists."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.graph import Call
from palaestra.core.message import assistant
from palaestra.core.model import Finish
from palaestra.evaluation.statistics.ratings import ELO_SCALE, Game, bradley_terry, elo, game_of
from tests.evaluation.made import CRASH, FAILURE, episode


def played(strengths: dict[str, float], rounds: int, seed: int = 0) -> list[Game]:
    """Each pair of players `rounds` times, with the chances of the model."""
    rng = np.random.default_rng(seed)
    names = list(strengths)
    return [
        Game(a, b, float(rng.random() < 1 / (1 + exp(strengths[b] - strengths[a]))))
        for _ in range(rounds)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]


LEVELS = {"expert": 1.2, "trained": 0.3, "base": -0.5, "random": -1.0}
GAMES = played(LEVELS, 60)


def test_two_players_have_the_odds_of_their_score() -> None:
    found = bradley_terry([Game("a", "b", 1.0)] * 3 + [Game("b", "a", 1.0)])
    assert found.players == ("a", "b")
    assert found.win_probability("a", "b") == pytest.approx(0.75)
    assert found.difference("a", "b").mean == pytest.approx(np.log(3))
    # The error of a log-odds: sqrt(1/wins + 1/losses).
    width = found.difference("a", "b").high - found.difference("a", "b").low
    assert width == pytest.approx(2 * 1.959964 * np.sqrt(1 / 3 + 1), rel=1e-5)


def test_strengths_are_where_scipys_optimiser_finds_the_maximum() -> None:
    names = sorted(LEVELS)
    place = {name: i for i, name in enumerate(names)}

    def surprise(free: np.ndarray) -> float:
        s = np.append(free, -free.sum())
        total = 0.0
        for game in GAMES:
            ahead = s[place[game.first]] - s[place[game.second]]
            total += game.score * np.logaddexp(0, -ahead)
            total += (1 - game.score) * np.logaddexp(0, ahead)
        return float(total)

    best = minimize(surprise, np.zeros(len(names) - 1), tol=1e-10).x
    expected = dict(zip(names, np.append(best, -best.sum()), strict=True))
    found = bradley_terry(GAMES)
    for name in names:
        assert found.strength(name).mean == pytest.approx(expected[name], abs=1e-4)


def test_strengths_and_errors_agree_with_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.api", reason="a peer to check by")
    names = sorted(LEVELS)
    rows = np.zeros((len(GAMES), len(names)))
    for row, game in zip(rows, GAMES, strict=True):
        row[names.index(game.first)], row[names.index(game.second)] = 1, -1
    fit = api.Logit([game.score for game in GAMES], rows[:, 1:]).fit(disp=0)
    found = bradley_terry(GAMES)
    for name, theirs, error in zip(names[1:], fit.params, fit.bse, strict=True):
        ours = found.difference(name, names[0])
        assert ours.mean == pytest.approx(theirs, abs=1e-5)
        assert (ours.high - ours.low) / (2 * 1.959964) == pytest.approx(error, rel=1e-4)


def test_intervals_cover_the_truth_about_as_often_as_they_claim() -> None:
    covered = total = 0
    centre = sum(LEVELS.values()) / len(LEVELS)
    for seed in range(300):
        found = bradley_terry(played(LEVELS, 25, seed))
        for name, level in LEVELS.items():
            interval = found.strength(name)
            covered += interval.low <= level - centre <= interval.high
            total += 1
    assert 0.93 <= covered / total <= 0.97


results = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.sampled_from([0.0, 0.5, 1.0])),
    min_size=1,
    max_size=30,
).map(lambda found: [Game(x, y, score) for x, y, score in found if x != y])
ROUND = [Game(x, y, 0.5) for x, y in ("ab", "bc", "cd")]  # a path of draws: the fit exists


@settings(max_examples=50)
@given(results, st.randoms(use_true_random=False))
def test_the_order_of_the_games_and_of_the_players_does_not_matter(games, random) -> None:
    games = [*ROUND, *games]
    shuffled = [Game(g.second, g.first, 1 - g.score) if random.random() < 0.5 else g for g in games]
    random.shuffle(shuffled)
    one, other = bradley_terry(games), bradley_terry(shuffled)
    for name in "abcd":
        assert one.strength(name).mean == pytest.approx(other.strength(name).mean, abs=1e-6)
        assert one.strength(name).low == pytest.approx(other.strength(name).low, abs=1e-6)


@settings(max_examples=50)
@given(results)
def test_expected_scores_are_the_scores_and_strengths_sum_to_zero(games: list[Game]) -> None:
    games = [*ROUND, *games]
    found = bradley_terry(games)
    assert sum(found.strengths) == pytest.approx(0, abs=1e-9)
    for name in "abcd":
        score = expected = 0.0
        for g in games:
            if name in (g.first, g.second):
                other = g.second if name == g.first else g.first
                score += g.score if name == g.first else 1 - g.score
                expected += found.win_probability(name, other)
        assert expected == pytest.approx(score, abs=1e-6)


@settings(max_examples=50)
@given(results, st.sampled_from("abcd"), st.sampled_from("abcd"))
def test_another_win_never_lowers_the_winner(games: list[Game], winner: str, loser: str) -> None:
    if winner == loser:
        return
    games = [*ROUND, *games]
    before, after = bradley_terry(games), bradley_terry([*games, Game(winner, loser, 1.0)])
    assert after.win_probability(winner, loser) >= before.win_probability(winner, loser) - 1e-9


def test_more_games_narrow_the_interval() -> None:
    few, many = bradley_terry(played(LEVELS, 20)), bradley_terry(played(LEVELS, 320))
    for name in LEVELS:
        narrow, wide = many.strength(name), few.strength(name)
        assert narrow.high - narrow.low < 0.35 * (wide.high - wide.low)
    assert few.strength("base").n == 60


def test_four_hundred_points_of_elo_are_odds_of_ten_to_one() -> None:
    found = bradley_terry([Game("a", "b", 1.0)] * 10 + [Game("b", "a", 1.0)])
    assert found.elo("a").mean - found.elo("b").mean == pytest.approx(400)
    assert found.elo("a").mean + found.elo("b").mean == pytest.approx(3000)


@pytest.mark.parametrize(
    ("games", "output"),
    [
        ([Game("a", "b", 1.0)] * 5, "'a' lost no point to b"),
        ([Game("a", "b", 0.5), Game("c", "d", 0.5)], "'a' won no point from c, d"),
        ([], "no games"),
    ],
)
def test_strengths_that_do_not_exist_are_refused_with_the_reason(games, output: str) -> None:
    with pytest.raises(InputError, match=output):
        bradley_terry(games)


def test_a_win_over_someone_through_others_is_enough() -> None:
    ring = [Game("a", "b", 1.0), Game("b", "c", 1.0), Game("c", "a", 1.0)]
    assert bradley_terry(ring).strengths == pytest.approx([0, 0, 0], abs=1e-9)


def test_an_unknown_player_and_an_impossible_game_are_refused() -> None:
    with pytest.raises(UnknownName, match="expert"):
        bradley_terry(GAMES).strength("exprt")
    with pytest.raises(InputError, match="itself"):
        Game("a", "a", 1.0)
    with pytest.raises(InputError, match="0 to 1"):
        Game("a", "b", 2.0)


# ── Elo ──────────────────────────────────────────────────────────────────────


def test_elo_moves_by_what_was_not_expected() -> None:
    assert elo([Game("a", "b", 1.0)]) == {"a": 1516.0, "b": 1484.0}
    assert elo([Game("a", "b", 0.5)]) == {"a": 1500.0, "b": 1500.0}
    twice = elo([Game("a", "b", 1.0)] * 2)
    expected = 1 / (1 + 10 ** (-32 / 400))
    assert twice["a"] == pytest.approx(1516 + 32 * (1 - expected))


@given(results)
def test_elo_gives_no_one_points_that_no_one_lost(games: list[Game]) -> None:
    ratings = elo(games)
    assert sum(ratings.values()) == pytest.approx(1500 * len(ratings))
    assert list(ratings.values()) == sorted(ratings.values(), reverse=True)


def test_elo_with_small_steps_tends_to_bradley_and_terrys_strengths() -> None:
    games = played(LEVELS, 4000)
    sequential, fitted = elo(games, k=4.0), bradley_terry(games)
    for name in LEVELS:
        assert sequential[name] == pytest.approx(fitted.elo(name).mean, abs=0.2 * ELO_SCALE)


# ── games out of episodes ────────────────────────────────────────────────────


def game(rewards: dict[str, float], policies: dict[str, str], **changes) -> Episode:
    recorded = episode("eval/test", 0, FAILURE, ["rock"])
    (step,) = recorded.steps
    calls = tuple(
        Call(
            index=index,
            parent=None,
            role=role,
            messages=(),
            prompt=(),
            reply=assistant("rock"),
            completion=(),
            logprobs=(),
            finish=Finish.STOP,
            policy=policy,
            version=0,
        )
        for index, (role, policy) in enumerate(policies.items())
    )
    transition = replace(step.transition, rewards=rewards)
    return replace(recorded, calls=calls, steps=(replace(step, transition=transition),), **changes)


def test_a_game_is_won_by_the_policy_whose_player_is_rewarded_more() -> None:
    seats = {"p0": "tiny", "p1": "random"}
    assert game_of(game({"p0": 1.0, "p1": -1.0}, seats)) == Game("tiny", "random", 1.0)
    assert game_of(game({"p0": -2.0, "p1": 2.0}, seats)) == Game("tiny", "random", 0.0)
    assert game_of(game({"p0": 0.0, "p1": 0.0}, seats)) == Game("tiny", "random", 0.5)


def test_what_is_no_game_between_two_policies_rates_no_one() -> None:
    assert game_of(game({"p0": 1.0, "p1": -1.0}, {"p0": "tiny", "p1": "tiny"})) is None
    assert game_of(game({"p0": 1.0, "p1": -1.0}, {"p0": "tiny"})) is None
    assert game_of(game({"p0": 1.0}, {"p0": "tiny"})) is None
    seats = {"p0": "tiny", "p1": "random"}
    assert game_of(game({"p0": 1.0, "p1": -1.0}, seats, outcome=CRASH)) is None
    assert game_of(episode("eval/test", 0, FAILURE)) is None
