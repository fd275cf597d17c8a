"""What a network with decentralised routing learns from a run: a team's file from a record.

An edge over which a task went moves towards the success of the task's episode, and the member that
did a task keeps it in its memory:

    w <- ALPHA * w + (1 - ALPHA) * S           (S is 1 if the episode was solved, else 0)

The weight of an edge that was never used is 1. A memory holds the last `MEMORY` tasks.

Source: AgentNet, Yang et al. 2025. There weights and memories change within a run, and so its
episodes depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.teams.team_file import Team

ALPHA = 0.9
MEMORY = 100  # past tasks of a member


def learned(team: Team, episodes: Iterable[Episode]) -> Team:
    """Return a team with routing after episodes of it, which may be given in any order.

    Episodes without a scored outcome teach nothing, nor does what members did that the team has no
    more.
    """
    assert team.routing is not None
    edges = {source: dict(targets) for source, targets in team.routing.edges.items()}
    past = {member: [*tasks] for member, tasks in team.routing.past.items()}
    for episode in sorted(episodes, key=_place):
        solved = episode.outcome.solved
        for route in routes_of(episode):
            path = [member for member in route["path"] if member in team.members]
            for source, target in pairwise(path):
                weights = edges.setdefault(source, {})
                weights[target] = ALPHA * weights.get(target, 1.0) + (1 - ALPHA) * solved
            doer = route["path"][-1]
            if doer in team.members and not route["split"]:
                past.setdefault(doer, []).append((route["task"], solved))
    kept = {member: tuple(tasks[-MEMORY:]) for member, tasks in past.items()}
    return _with(team, edges, kept)


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


def routes_of(episode: Episode) -> list[dict[str, Any]]:
    """Return the ways of an episode's tasks and parts; empty where its outcome is not scored."""
    if not episode.outcome.scored:
        return []
    return [route for step in episode.steps for route in step.transition.info.get("routes", ())]


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
