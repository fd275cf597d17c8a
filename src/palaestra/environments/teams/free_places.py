"""Free places of a team that forms at run time, and who came in: members of the reserve.

Somebody registers in a place with its skills, before a search, or a host makes somebody of the
skills that it needs. Who is there, and with what skills, is a reply like any other, so the record
has it and an episode that is resumed does not depend on who is there then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from palaestra.environments.teams.protocol_tables import Formation
from palaestra.environments.teams.team_file import Team


class Places:
    """The places of one team in one episode."""

    def __init__(self, team: Team, settings: Formation) -> None:
        """Begin with all places free."""
        self._team = team
        self.made = settings.places == "make"  # whether hosts fill them; else who is there does
        self.joined: dict[str, str] = {}  # skills, by member
        self.invited: list[str] = []  # free places that are asked now who is there
        self._searches: list[tuple[str, str]] = []  # host and skills, once these have replied

    def begin_turn(self) -> None:
        """Ask nobody; who came in before stays."""
        self.invited, self._searches = [], []

    def free(self, turn: int, out: Collection[str]) -> list[str]:
        """Return the free places in a turn; `out` are members that have left the team's work."""
        there = [name for name in self._team.reserve if self._team.members[name].there(turn)]
        return [name for name in there if name not in self.joined and name not in out]

    def wait(self, host: str, skills: str, free: Collection[str]) -> bool:
        """Let the search of a host wait for who registers; return false if nobody is asked."""
        if self.made:
            return False
        self.invited += [name for name in free if name not in self.invited]
        if self.invited:
            self._searches.append((host, skills))
        return bool(self.invited)

    def register(self, place: str, skills: str | None) -> list[tuple[str, str]]:
        """Take the reply for a place, None if nobody is there; return the searches that go on."""
        self.invited.remove(place)
        if skills is not None:
            self.joined[place] = skills
        if self.invited:
            return []
        searches, self._searches = self._searches, []
        return searches

    def forget(self, host: str) -> None:
        """Drop the search of a host whose group has ended."""
        self._searches = [search for search in self._searches if search[0] != host]

    def saved(self) -> Any:
        """Return the state as JSON can hold it."""
        return [{**self.joined}, [*self.invited], [list(search) for search in self._searches]]

    def restore(self, saved: Any) -> None:
        """Take back what `saved` returned."""
        self.joined, self.invited, searches = saved
        self._searches = [(host, skills) for host, skills in searches]
