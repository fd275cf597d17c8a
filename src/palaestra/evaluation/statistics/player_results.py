"""Results of several players, each by its own return: what reports show of a game.

The success of a game between players would be that of one of them. So reports name the mean return
of each, and success only where all players share their returns (`Stakes.returns` is "common").
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from palaestra.core.environment import Spec, Stakes
from palaestra.core.episode import Episode, PlayerResult
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.outcome import Outcome, Status
from palaestra.environments.registry import spec
from palaestra.evaluation.statistics.intervals import mean_interval

Played = tuple[int, Mapping[str, PlayerResult]]
"""The number of a task, and the result of each player in one scored episode of it."""

HEADS = ["player", "return", "95 %", "> 0", "= 0", "< 0", "invalid", "forfeits"]
"""The columns of `rows`; the signs count the episodes with such a return."""


@dataclass(frozen=True, slots=True)
class PlayerScore:
    """The results of one of several players over scored episodes."""

    mean: float  # return, over tasks
    interval: tuple[float, float] | None  # 95 %, over tasks; None of a single one
    episodes: int
    positive: int  # episodes with a return above 0: the games that it won, in a zero-sum game
    zero: int  # drawn, likewise
    negative: int  # lost, likewise
    turns: float  # its own actions per episode
    invalid_rate: float  # share of these that were invalid
    forfeits: Mapping[str, int]  # by reason


def player_scores(played: Iterable[Played]) -> dict[str, PlayerScore]:
    """Return the score of each of several players, in order; empty for a single player."""
    of: dict[str, list[tuple[int, PlayerResult]]] = {}
    for task, players in played:
        for player, result in players.items():
            of.setdefault(player, []).append((task, result))
    return {player: _score(results) for player, results in of.items()}


def scores_of(episodes: Iterable[Episode]) -> dict[str, PlayerScore]:
    """Return the score of each of several players; only scored episodes count."""
    return player_scores((e.key.group, e.players) for e in episodes if e.outcome.scored)


def return_of(player: str) -> Callable[[Episode], float | None]:
    """Make a measure of an episode: the return of a player; None if it does not play there."""
    return lambda episode: episode.results.get(player)


def has_success(environment: str, players: Collection[str] | None = None) -> bool:
    """Return whether an environment's episodes have one success: of its only player, or of all.

    Args:
        environment: its id. Code that only a record names is not loaded.
        players: those with results in recorded episodes; empty: they have a single player. None:
            the environment says.
    """
    if players is not None and not players:
        return True
    found = _known_spec(environment)
    if found is None:
        return players is None
    return len(found.players) < 2 or found.stakes.returns == "common"


def sides_of(environment: str, players: Collection[str]) -> list[tuple[str, ...]]:
    """Return the players of recorded episodes in groups that have one return: teams, and others."""
    found = _known_spec(environment)
    return (Stakes() if found is None else found.stakes).sides(players)


def refuse_games(episodes: Sequence[Episode], runs: Sequence[str]) -> None:
    """Raise InputError for games between players, which have no success to compare.

    Args:
        episodes: of the runs.
        runs: their names.
    """
    players: dict[str, set[str]] = {}  # by environment
    for episode in episodes:
        players.setdefault(episode.task.environment, set()).update(episode.results)
    for environment, names in players.items():
        if not has_success(environment, names):
            raise InputError(
                f"'{environment}' is a game between players, which has no success to compare; rate "
                f"the policies with: palaestra ratings {' '.join(runs)}."
            )


def as_json(scores: Mapping[str, PlayerScore]) -> dict[str, dict[str, Any]]:
    """Return scores as a JSON object."""
    return {player: asdict(score) for player, score in scores.items()}


def from_json(document: Mapping[str, Mapping[str, Any]]) -> dict[str, PlayerScore]:
    """Return what `as_json` wrote."""
    return {
        player: PlayerScore(**{**one, "interval": one["interval"] and tuple(one["interval"])})
        for player, one in document.items()
    }


def rows(scores: Mapping[str, PlayerScore]) -> list[list[str]]:
    """Return one row of text per player, under HEADS."""
    return [
        [
            player,
            signed(one.mean),
            "" if one.interval is None else " to ".join(map(signed, one.interval)),
            *(str(count) for count in (one.positive, one.zero, one.negative)),
            f"{100 * one.invalid_rate:.1f} %",
            ", ".join(f"{count} × {reason}" for reason, count in one.forfeits.items()),
        ]
        for player, one in scores.items()
    ]


def line(scores: Mapping[str, PlayerScore]) -> str:
    """Return the mean returns of all players in one line."""
    return ", ".join(f"{player} {signed(one.mean)}" for player, one in scores.items())


def returns_line(players: Mapping[str, PlayerResult]) -> str:
    """Return the players' returns in one episode in one line, with who forfeited."""
    return ", ".join(
        f"{player} {one.total:+.3g}{' (forfeit)' if one.forfeited else ''}"
        for player, one in players.items()
    )


def ending(episode: Episode) -> str:
    """Return how an episode ended: its outcome, or the return of each of several players."""
    players = episode.players
    if not players:
        return str(episode.outcome)
    returns = returns_line(players)
    one = has_success(episode.task.environment, players)
    return f"{episode.outcome} ({returns})" if one else returns


def forfeit_reason(outcome: Outcome) -> str:
    """Return why a player forfeited, in words."""
    match outcome.status:
        case Status.TRUNCATED:
            return f"out of {outcome.limit}"
        case Status.ERROR:
            return str(outcome.kind)
    return "gave up"


def signed(number: float) -> str:
    """Return a return as text: "+0.25"."""
    return f"{number:+.2f}"


def strength_commands(environment: str, run: str, *, policies: int) -> list[str]:
    """Return the commands that measure how well the policies of recorded games play.

    Args:
        environment: its id.
        run: the run's folder.
        policies: how many different ones played.
    """
    rated = policies > 1 and not has_success(environment)
    found = [f"palaestra ratings {run}"] if rated else []
    game = environment.startswith("openspiel/") and "?" not in environment
    return [*found, *([f"palaestra exploitability {run}"] if game else [])]


# ── details ──────────────────────────────────────────────────────────────────


def _score(results: list[tuple[int, PlayerResult]]) -> PlayerScore:
    by_task: dict[int, list[float]] = {}
    for task, result in results:
        by_task.setdefault(task, []).append(result.total)
    means = [sum(totals) / len(totals) for totals in by_task.values()]
    try:
        found = mean_interval(means)
        mean, interval = found.mean, (found.low, found.high)
    except GroupTooSmall:
        mean, interval = means[0], None
    totals = [result.total for _, result in results]
    turns = sum(result.turns for _, result in results)
    reasons = Counter(forfeit_reason(result.outcome) for _, result in results if result.forfeited)
    return PlayerScore(
        mean=mean,
        interval=interval,
        episodes=len(results),
        positive=sum(total > 0 for total in totals),
        zero=sum(total == 0 for total in totals),
        negative=sum(total < 0 for total in totals),
        turns=turns / len(results),
        invalid_rate=sum(result.invalid_actions for _, result in results) / max(1, turns),
        forfeits=dict(reasons.most_common()),
    )


def _known_spec(environment: str) -> Spec | None:
    """Return the spec of an environment, unless it is not installed or only a record names it."""
    module, colon, _ = environment.partition("?")[0].partition(":")
    if colon and "/" not in module and module not in sys.modules:
        return None
    try:
        return _spec(environment)
    except InputError:
        return None


_spec = lru_cache(256)(spec)  # one of OpenSpiel takes a while
