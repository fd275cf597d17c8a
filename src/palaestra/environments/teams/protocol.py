"""What any protocol of a team is: who replies next, what it is asked, what the team decides.

No environment and no model: texts in, who is next and a decision out. All state is JSON, and chance
follows from the seed, so an episode that was interrupted goes on as it was.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from palaestra.core.episode import Episode
from palaestra.core.team_words import PASS
from palaestra.environments.teams.team_file import Team

ONE_EACH: Mapping[str, int] = MappingProxyType({})
"""How many replies it takes until a member has replied, where no member is a team."""


class InnerDecision(TypedDict):
    """What a team in a member's place decided on, which is that member's reply."""

    did: str
    facts: dict[str, Any]  # of the turn that this decided, see `Protocol.facts`


class Protocol(ABC):
    """The protocol of one team in one episode; at its beginning the first turn has begun.

    A turn ends with an action of the environment. Players are the team's members; only the protocol
    that `protocol_of` returns also knows those of a team in a member's place, as `member.inner`.
    """

    team: Team
    seed: int
    watches: bool = False
    """Whether it depends on what the environment shows, or on its state, who replies next."""

    def begin(self, observation: str, state: str | None = None) -> None:
        """Take note of what the environment shows at first; arguments as of `begin_turn`."""

    @abstractmethod
    def next(self) -> list[str]:
        """Return the players that reply now: one, or several at the same time; at least one."""

    @abstractmethod
    def asked(self, player: str = "") -> str:
        """Return what a player is asked for: the last lines of what it sees."""

    @abstractmethod
    def refusal(self, text: str, player: str = "") -> str | None:
        """Return why a reply of a player that is asked now is none; None: it is one."""

    def kind(self, player: str, text: str) -> str:
        """Return in a word what a reply does, of a player that is asked now: for the record.

        A word of `ASKED` or `routing_words`, or halt or pass.
        """
        return "pass" if text.strip() == PASS else "talk"

    @abstractmethod
    def take(self, player: str, text: str) -> str | None:
        """Take the reply of one of `next`; return the action once the team decided on one.

        All of `next` reply before others are asked, in its order.

        The action `PASS` means that nobody decided: the episode ends.
        """

    def said(self) -> list[tuple[str, str]]:
        """Return speaker and line of all that was said since the last call, in its order."""
        return []

    def audience(self) -> Sequence[str] | None:
        """Return the members that hear what was said last; None: those of `Team.sees`.

        It does not hold for what is said in a team in a member's place, which stays there.
        """
        return None

    @abstractmethod
    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        """Begin the next turn, once the environment has taken the action or refused it.

        Args:
            observation: what the environment showed; None: it was not asked, since the team is in
                a member's place and has decided on that member's reply.
            state: the key of the environment's state; None: unknown.
        """

    @abstractmethod
    def halt(self) -> str | None:
        """End the talk of this turn; return the action if that decides on it.

        It is called while no member is to reply at the same time as one that has replied.
        """

    def facts(self) -> dict[str, Any]:
        """Return what the record holds of the turn that was just decided, as JSON."""
        return {}

    def decided_within(self) -> dict[str, InnerDecision]:
        """Return what teams in members' places decided by the last reply, by member."""
        return {}

    @abstractmethod
    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        """Return a random reply of a player to what it is asked; `action` samples an action."""

    @abstractmethod
    def ideal(self, action: str, player: str = "") -> str:
        """Return the reply of a player that knows the right action."""

    @abstractmethod
    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        """Return the largest number of replies in one turn.

        Args:
            each: how many replies it takes until a team in a member's place has replied; 1 for
                members that are missing.
        """

    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """Return the state as something to hash; equal states give equal values."""

    @abstractmethod
    def saved(self) -> Any:
        """Return the state as JSON can hold it."""

    @abstractmethod
    def restore(self, saved: Any) -> None:
        """Take back what `saved` returned."""


def protocol_of(team: Team, seed: int) -> Protocol:
    """Return the protocol that a team describes, at the beginning of its first turn."""
    from palaestra.environments.teams.layered_network import LayeredNetwork
    from palaestra.environments.teams.nested import Nested
    from palaestra.environments.teams.orchestrator import Orchestrator
    from palaestra.environments.teams.own_protocol import OwnTeam
    from palaestra.environments.teams.routing import Routing
    from palaestra.environments.teams.staged_protocol import Stages
    from palaestra.environments.teams.team_formation import Groups
    from palaestra.environments.teams.team_supervisor import Supervised

    protocol: Protocol
    if isinstance(team, OwnTeam):
        protocol = team.own(team, seed)
    elif team.orchestrator is not None:
        protocol = Orchestrator(team, seed)
    elif team.network is not None:
        protocol = LayeredNetwork(team, team.network, seed)
    elif team.routing is not None:
        protocol = Routing(team, team.routing, seed)
    elif team.formation is not None:
        protocol = Groups(team, team.formation, seed)
    else:
        protocol = Stages(team, seed)
    if team.supervisor is not None:
        protocol = Supervised(protocol, team.supervisor)
    return Nested(protocol) if team.inner else protocol


def facts_of(episode: Episode, place: str = "") -> list[dict[str, Any]]:
    """Return what the record holds of each turn of a team that was decided (`Protocol.facts`).

    Args:
        episode: finished or not.
        place: the member in whose place the team is; empty: it is in none.
    """
    notes = [step.transition.info.get("team", {}) for step in episode.steps]
    if place:
        notes = [note.get("within", {}).get(place, {}) for note in notes]
    return [note["facts"] for note in notes if "facts" in note]
