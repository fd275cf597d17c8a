"""The value of the knob `team`: a team, or in a game the teams of some players.

questions/things-2?team=majority
openspiel/kuhn_poker:self?team=player0:majority,player1:my_team.toml
"""

from __future__ import annotations

from collections.abc import Mapping

from palaestra.core.environment import Spec
from palaestra.core.errors import InputError
from palaestra.environments.teams.team_file import Team, load


def teams_in(spec: Spec, value: str) -> dict[str, Team]:
    """Return the teams that a value of the knob names, by player of the environment.

    Raises:
        InputError: it names no team, a player twice, or one that does not play; in a game it does
            not say for which players teams act.
        UnknownName: there is no such team.
    """
    first, *others = spec.players
    if not others:
        try:
            return {first: load(value)}
        except InputError:
            player, _, name = value.partition(":")
            if not _exists(name):
                raise
            raise InputError(
                f"team={value} names the player '{player}', and '{spec.id}' has a single one; "
                f"write team={name}."
            ) from None
    example = f"team={first}:majority"
    found: dict[str, Team] = {}
    for part in value.split(","):
        player, colon, name = part.partition(":")
        if not (colon and player and name):
            raise InputError(
                f"team={value} does not say for which player '{part}' acts, and '{spec.id}' has "
                f"the players {', '.join(spec.players)}; write for example {example}."
            )
        if player not in spec.players:
            raise InputError(
                f"team={value} names the player '{player}', who does not play '{spec.id}'; its "
                f"players are {', '.join(spec.players)}."
            )
        if player in found:
            raise InputError(f"team={value} names '{player}' twice; give each player one team.")
        found[player] = load(name)
    return found


def _exists(name: str) -> bool:
    """Return whether there is a team of that name."""
    try:
        load(name)
    except InputError:
        return False
    return True


def names_of(spec: Spec, player: str, team: Team) -> dict[str, str]:
    """Return how the members of a team are called as players: in a game `white.first`."""
    prefix = f"{player}." if len(spec.players) > 1 else ""
    return {member: f"{prefix}{member}" for member in team.players}


def knob_value(teams: Mapping[str, str]) -> str:
    """Return the value of the knob for the names of teams, by player."""
    return ",".join(f"{player}:{name}" for player, name in teams.items())
