"""What a network with decentralised routing learns from a run: a team's file from a record.

An edge over which a task went moves towards the success of the task's episode, and the member that
did a task keeps it in its memory:

    w <- ALPHA * w + (1 - ALPHA) * S           (S is 1 if the episode was solved, else 0)

The weight of an edge that was never used is 1. A memory holds `MEMORY` tasks. In a full one the
tasks that resemble most others give way, the oldest of them first: without the few failures outside
its skill, a specialist would look untried there.

Source: AgentNet, Yang et al. 2025, whose memories also forget by recency and uniqueness. There
weights and memories change within a run, and so its episodes depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestra.core.bm25 import words
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.routing_words import unnumbered
from palaestra.environments.teams.protocol import facts_of
from palaestra.environments.teams.team_file import Team

ALPHA = 0.9
MEMORY = 100  # past tasks of a member


def learned(team: Team, episodes: Iterable[Episode], place: str = "") -> Team:
    """Return a team with routing after episodes of it, which may be given in any order.

    Episodes without a scored outcome teach nothing, nor does what members did that the team has no
    more. `place` is the member in whose place the team is, if it is in one.
    """
    assert team.routing is not None
    edges = {source: dict(targets) for source, targets in team.routing.edges.items()}
    past = {member: [*tasks] for member, tasks in team.routing.past.items()}
    for episode in sorted(episodes, key=_place):
        solved = episode.outcome.solved
        for route in routes_of(episode, place):
            path = [member for member in route["path"] if member in team.members]
            for source, target in pairwise(path):
                weights = edges.setdefault(source, {})
                weights[target] = ALPHA * weights.get(target, 1.0) + (1 - ALPHA) * solved
            doer = route["path"][-1]
            if doer in team.members and not route["split"]:
                past.setdefault(doer, []).append((route["task"], solved))
    return _with(team, edges, {member: _kept(tasks) for member, tasks in past.items()})


def without(team: Team, member: str) -> Team:
    """Return a team without a member, and without what it has learned about it.

    Raises:
        InputError: there is no such member.
    """
    if member not in team.members:
        known = ", ".join(team.members)
        raise InputError(f"The team has no member '{member}'; name one of {known}.")
    assert team.routing is not None
    edges = {
        source: {target: weight for target, weight in targets.items() if target != member}
        for source, targets in team.routing.edges.items()
        if source != member
    }
    past = {one: tasks for one, tasks in team.routing.past.items() if one != member}
    left = {name: one for name, one in team.members.items() if name != member}
    return _with(team.model_copy(update={"members": left}), edges, past)


def routes_of(episode: Episode, place: str = "") -> list[dict[str, Any]]:
    """Return the ways of an episode's tasks and parts; empty where its outcome is not scored.

    `place` is the member in whose place the team is, if it is in one.
    """
    if not episode.outcome.scored:
        return []
    return [route for turn in facts_of(episode, place) for route in turn.get("routes", ())]


def _kept(tasks: Sequence[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Return the tasks that a member remembers, in their order."""
    left = {index: frozenset(words(unnumbered(text))) for index, (text, _) in enumerate(tasks)}
    crowd = {
        index: sum(_alike(one, other) for other in left.values()) for index, one in left.items()
    }
    while len(left) > MEMORY:
        gone = max(left, key=lambda index: round(crowd[index], 6))  # of equals the oldest
        forgotten = left.pop(gone)
        for index, one in left.items():
            crowd[index] -= _alike(one, forgotten)
    return tuple(tasks[index] for index in left)


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of their words that two texts have in common (Jaccard)."""
    return len(one & other) / max(1, len(one | other))


def _place(episode: Episode) -> tuple[str, int, int]:
    key = episode.key
    return key.phase, key.group, key.member


def _with(
    team: Team,
    edges: Mapping[str, Mapping[str, float]],
    past: Mapping[str, Sequence[tuple[str, bool]]],
) -> Team:
    assert team.routing is not None
    table = team.routing.model_copy(update={"edges": edges, "past": past})
    return team.model_copy(update={"routing": table})
