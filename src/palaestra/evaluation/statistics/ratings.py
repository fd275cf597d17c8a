"""Ratings of players from games between them: Bradley–Terry, and Elo as its sequential form.

In the Bradley–Terry model `i` beats `j` with probability `1 / (1 + exp(s_j - s_i))`. Fitted to
all games at once, it does not depend on their order and has intervals; Elo updates the ratings
after each game, follows players that change, and depends on the order. A draw counts as half a
win for each, which makes the fit a quasi-likelihood.

Sources: Bradley and Terry 1952; Ford 1957 (when the fit exists); Elo 1978.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from palaestra.core.episode import Episode, PlayerResult, player_of
from palaestra.core.errors import InputError, UnknownName
from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.player_results import sides_of

Array = NDArray[np.float64]
ELO_SCALE = 400 / log(10)  # points of Elo per unit of strength


@dataclass(frozen=True, slots=True)
class Game:
    """The result of one game between two players."""

    first: str
    second: str
    score: float  # of the first: 1 won, 0.5 drawn, 0 lost

    def __post_init__(self) -> None:
        if not (isfinite(self.score) and 0 <= self.score <= 1):
            raise InputError(f"A game's score of {self.score} is invalid; give 0 to 1.")
        if self.first == self.second:
            raise InputError(
                f"'{self.first}' played against itself, which gives no rating; leave the game out."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """The strengths of players, relative to each other."""

    players: tuple[str, ...]  # the strongest first
    strengths: Array  # natural logarithms of odds, shape [players]; they sum to zero
    covariance: Array  # of the estimates, shape [players, players]
    games: tuple[int, ...]  # of each player

    def strength(self, player: str, confidence: float = 0.95) -> Interval:
        """Return the strength over the average player; `Interval.n` is the number of games."""
        i = self._index(player)
        return self._interval(self.strengths[i], self.covariance[i, i], self.games[i], confidence)

    def difference(self, player: str, other: str, confidence: float = 0.95) -> Interval:
        """Return how much stronger `player` is than `other`, in log-odds of winning."""
        i, j = self._index(player), self._index(other)
        variance = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return self._interval(
            self.strengths[i] - self.strengths[j],
            variance,
            min(self.games[i], self.games[j]),
            confidence,
        )

    def elo(self, player: str, average: float = 1500.0, confidence: float = 0.95) -> Interval:
        """Return the strength on the Elo scale, on which 400 points are odds of 10 to 1."""
        found = self.strength(player, confidence)
        mean, low, high = (average + ELO_SCALE * x for x in (found.mean, found.low, found.high))
        return Interval(mean, low, high, found.n)

    def win_probability(self, player: str, other: str) -> float:
        """Return the probability that `player` beats `other`."""
        ahead = self.strengths[self._index(player)] - self.strengths[self._index(other)]
        return 1 / (1 + exp(-float(ahead)))

    def _index(self, player: str) -> int:
        if player not in self.players:
            raise UnknownName("player", player, self.players)
        return self.players.index(player)

    @staticmethod
    def _interval(value: float, variance: float, n: int, confidence: float) -> Interval:
        if not 0 < confidence < 1:
            raise InputError(f"A confidence of {confidence} is invalid; give one between 0 and 1.")
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        around = z * sqrt(max(0.0, float(variance)))
        return Interval(float(value), float(value) - around, float(value) + around, n)


def bradley_terry(games: Sequence[Game]) -> Ratings:
    """Fit strengths by maximum likelihood, with the covariance from the Fisher information.

    Raises:
        InputError: there is no game, or no finite fit: some players have never lost (or never
            won) a point against the others.
    """
    names = sorted({name for game in games for name in (game.first, game.second)})
    if not names:
        raise InputError("There are no games to rate players from; play some.")
    index = {name: i for i, name in enumerate(names)}
    won = np.zeros((len(names), len(names)))
    for game in games:
        i, j = index[game.first], index[game.second]
        won[i, j] += game.score
        won[j, i] += 1 - game.score
    _check_connected(won, names)
    strengths, information = _fit(won)
    # The likelihood depends on differences only; this inverse is for strengths that sum to 0.
    flat = np.ones_like(won) / len(names)
    covariance = np.linalg.inv(information + flat) - flat
    order = np.argsort(-strengths, kind="stable")
    counts = won.sum(axis=0) + won.sum(axis=1)
    return Ratings(
        players=tuple(names[i] for i in order),
        strengths=strengths[order],
        covariance=covariance[np.ix_(order, order)],
        games=tuple(round(counts[i]) for i in order),
    )


def elo(games: Sequence[Game], *, k: float = 32.0, start: float = 1500.0) -> dict[str, float]:
    """Return Elo ratings after the games in their order, the highest first.

    Args:
        games: in the order in which they were played.
        k: the most points that one game can move.
        start: rating of a player before the first game.
    """
    ratings: dict[str, float] = {}
    for game in games:
        first = ratings.setdefault(game.first, start)
        second = ratings.setdefault(game.second, start)
        expected = 1 / (1 + exp((second - first) / ELO_SCALE))
        moved = k * (game.score - expected)
        ratings[game.first], ratings[game.second] = first + moved, second - moved
    return dict(sorted(ratings.items(), key=lambda item: -item[1]))


def game_of(episode: Episode) -> Game | None:
    """Return an episode as a game between the policies behind the players' calls.

    The winner is the side with the larger return, which a forfeit may decide. A team is a side, and
    rated by its size and its policies, as "team of 3: NAME".

    Returns:
        None if it is not a game between two policies: it has no valid result or not exactly two
        sides, one of them made no call, or a policy played itself.
    """
    if not episode.outcome.scored:
        return None
    players = episode.players
    sides = sides_of(episode.task.environment, players)
    policies = {player_of(call.role): call.policy for call in episode.calls}
    policies |= {call.role: call.policy for call in episode.calls}
    if len(sides) != 2 or not all(policies.keys() & side for side in sides):
        return None
    one, two = (_name_of(side, policies) for side in sides)
    if one == two:
        return None
    first, second = (_return_of(side, players) for side in sides)
    return Game(one, two, 0.5 if first == second else float(first > second))


def _name_of(side: Sequence[str], policies: Mapping[str, str]) -> str:
    """Return how a side is rated."""
    names = ", ".join(sorted({policies[player] for player in side if player in policies}))
    return names if len(side) == 1 else f"team of {len(side)}: {names}"


def _return_of(side: Sequence[str], players: Mapping[str, PlayerResult]) -> float:
    """Return what a side won: the return of a member that did not forfeit, if there is one."""
    results = sorted((players[player] for player in side), key=lambda one: one.forfeited)
    return results[0].total


def _fit(won: Array) -> tuple[Array, Array]:
    """Maximise the concave log-likelihood by Newton's method; return strengths and information."""
    played = won + won.T
    count = len(won)

    def likelihood(strengths: Array) -> float:
        ahead = strengths[:, None] - strengths[None, :]
        return float(-(won * np.logaddexp(0, -ahead)).sum())

    strengths = np.zeros(count)
    best = likelihood(strengths)
    while True:
        expected = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
        gradient = (won - played * expected).sum(axis=1)
        weights = played * expected * (1 - expected)
        information = np.diag(weights.sum(axis=1)) - weights
        step = np.linalg.solve(information + np.ones((count, count)) / count, gradient)
        size = 1.0
        while (reached := likelihood(strengths + size * step)) < best and size > 1e-9:
            size /= 2
        if size * np.abs(step).max() < 1e-10 or size <= 1e-9:
            return strengths - strengths.mean(), information
        strengths, best = strengths + size * step, reached


def _check_connected(won: Array, names: Sequence[str]) -> None:
    """Raise unless each player has won points from each other, directly or through others."""
    reach = (won > 0) | np.eye(len(won), dtype=bool)
    for middle in range(len(won)):
        reach |= np.outer(reach[:, middle], reach[middle])
    for player, name in enumerate(names):
        beaten, beating = reach[player], reach[:, player]
        if beaten.all() and beating.all():
            continue
        how, whom = ("lost no point to", beating) if beaten.all() else ("won no point from", beaten)
        others = [other for other, reached in zip(names, whom, strict=True) if not reached]
        raise InputError(
            f"'{name}' {how} {', '.join(others[:5])}, so no finite strength fits; "
            "play more games between them, or leave it out."
        )
