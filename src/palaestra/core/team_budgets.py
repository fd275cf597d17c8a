"""Budgets of teams as a whole: what members spend together, as far as it is recorded.

The record does not depend on who was faster, and neither does the moment at which a budget is used
up: it is seen when a member's turn begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from palaestra.core.environment import Stakes
from palaestra.core.episode import Step, player_of
from palaestra.core.graph import Call
from palaestra.core.outcome import Limit


class TeamBudgets:
    """What the teams with a budget have spent in an episode so far."""

    def __init__(self, stakes: Stakes) -> None:
        """Begin with nothing spent; see `Stakes.team_limits`."""
        self._limits = stakes.team_limits
        self._team_of = {
            member: player for player in self._limits for member in stakes.teams[player]
        }
        self._turns, self._tokens = Counter[str](), Counter[str]()
        self._steps = self._calls = 0  # counted ones

    def count(self, steps: Sequence[Step], calls: Sequence[Call]) -> None:
        """Count what is new among all steps and calls of the episode."""
        if not self._limits:
            return
        for step in steps[self._steps :]:
            team = self._team_of.get(step.before.turn or "")
            if team is not None and step.forfeit is None:
                self._turns[team] += 1
        for call in calls[self._calls :]:
            team = self._team_of.get(player_of(call.role))
            if team is not None:
                self._tokens[team] += call.sampled
        self._steps, self._calls = len(steps), len(calls)

    def reached(self, member: str) -> Limit | None:
        """Return the limit that a member's team has reached, or None."""
        team = self._team_of.get(member)
        if team is None:
            return None
        return self._limits[team].exhausted(self._turns[team], self._tokens[team], 0.0)
