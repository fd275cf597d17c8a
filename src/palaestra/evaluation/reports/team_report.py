"""What the members of a team did in the episodes of a run, by the team's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from palaestra.core.episode import Episode
from palaestra.environments.teams.learned_routes import routes_of
from palaestra.environments.teams.protocol import facts_of
from palaestra.evaluation.statistics.intervals import Interval, mean_interval, task_scores


class Work(NamedTuple):
    """What one member did with tasks and parts of tasks that were routed."""

    held: int
    done: int  # by itself: neither forwarded nor split
    solved: int  # of these, in episodes that were solved


def mean_importance(episodes: Sequence[Episode], place: str = "") -> dict[str, Interval]:
    """Return each member's Agent Importance Score in a layered network, as its mean per turn.

    Tasks are independent, and episodes of one task are averaged first. Empty if no turn of a
    network was decided. `place` is the member in whose place the network is, if it is in one.

    Raises:
        GroupTooSmall: fewer than two tasks.
    """
    decided = [episode for episode in episodes if _turns(episode, place)]
    members = list(dict.fromkeys(m for one in decided for turn in _turns(one, place) for m in turn))
    found = {}
    for member in members:
        by_task = task_scores(decided, partial(_mean, member=member, place=place))
        found[member] = mean_interval([*by_task.values()])
    return found


def work_of(
    episodes: Sequence[Episode], members: Sequence[str], place: str = ""
) -> dict[str, Work]:
    """Return what members did in decentralised routing, also of those who are not named.

    `place` is the member in whose place their team is, if it is in one.
    """
    found = dict.fromkeys(members, Work(0, 0, 0))
    for episode in episodes:
        for route in routes_of(episode, place):
            for member in route["path"]:
                held, done, solved = found.get(member, Work(0, 0, 0))
                own = member == route["path"][-1] and not route["split"]
                won = own and episode.outcome.solved
                found[member] = Work(held + 1, done + own, solved + won)
    return found


def _turns(episode: Episode, place: str) -> list[dict[str, float]]:
    found = [turn["importance"] for turn in facts_of(episode, place) if "importance" in turn]
    return found if episode.outcome.scored else []


def _mean(episode: Episode, member: str, place: str) -> float:
    turns = _turns(episode, place)
    return sum(turn.get(member, 0.0) for turn in turns) / len(turns)
