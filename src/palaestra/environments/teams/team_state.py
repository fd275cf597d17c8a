"""One team in one episode: its protocol, what was said in it, and what each member was shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypedDict

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.team_words import DID, PASS, skilled
from palaestra.environments.base import hashed
from palaestra.environments.teams.protocol import InnerDecision, protocol_of
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import plain


class TeamNote(TypedDict, total=False):
    """What the record says of a team besides the texts of replies, under `team` in the `info`."""

    does: str  # what a member's reply is, see `Protocol.kind`
    player: str  # in a game, the player in whose place its team acts
    said: list[list[Any]]
    """Lines that others may now read: number and speaker. Where that is a team in a member's place,
    which has no reply of its own, also the line."""

    heard: dict[str, list[int]]  # by player whose turn begins, the numbers of lines shown to it
    did: str  # the action on which the team has decided
    facts: dict[str, Any]  # of the turn that this decided, see `Protocol.facts`
    within: dict[str, InnerDecision]  # what teams in members' places decided, by member


class _Line(NamedTuple):
    """What members may be shown."""

    speaker: str  # empty: the environment
    text: str
    to: Sequence[str] | None = None  # members that hear it; None: those of `Team.sees`


class TeamState:
    """A team that acts for one player of an environment; members are named as in its file."""

    def __init__(
        self, team: Team, seed: int, player: str = "", *, place: int = 0, of: int = 1
    ) -> None:
        """Begin an episode.

        Args:
            team: what its file says.
            seed: of its protocol.
            player: in whose place it acts; empty for the only one.
            place: among the teams of the environment, from 0.
            of: how many there are.
        """
        self.team, self.player = team, player
        self._place, self._of = place, of
        self.protocol = protocol_of(team, seed)
        self._begun = False  # whether its player has had a turn
        self.deciding = False  # whether it is the player's turn, and the team has not decided
        self.decision: Action | None = None  # until the environment takes it
        self.forfeited = False
        self.shown: dict[str, str] = {}  # what each saw at the beginning of its turn
        self._news: list[_Line] = []  # so far
        self._read = dict.fromkeys(team.players, 0)  # how many there were as each one's turn began
        self._unread: dict[str, list[int]] = {member: [] for member in team.players}
        """By member, the places among them of those that it is to be shown."""
        self._readers: dict[str, list[tuple[str, list[int]]]] = {}  # by speaker, as `Team.sees`
        self._digest, self._digested = "", 0
        """Of the first news, and how many: so a state key takes no longer the more was said."""

    def tell(self, *lines: _Line) -> None:
        """Add lines to what members are shown when their turns begin."""
        self._add(lines)

    def begin_turn(self, view: str, state: str | None) -> None:
        """Begin the team's turn.

        Args:
            view: what its player sees.
            state: the key of the environment's state; None: unknown.
        """
        begin = self.protocol.begin_turn if self._begun else self.protocol.begin
        begin(view, state)
        self.tell(_Line("", view))
        self._begun = self.deciding = True

    def begin(self, members: Iterable[str]) -> dict[str, list[int]]:
        """Begin the turns of members, who see what is new to them and what they are asked for.

        Returns:
            the numbers of the lines of others that each of them is shown, where there are any.
        """
        heard: dict[str, list[int]] = {}
        for member in members:
            lines = [] if member in self.shown else [self._briefing(member)]
            unread, news = self._unread[member], self._news
            lines += [news[at].text for at in unread]
            numbers = [at * self._of + self._place for at in unread if news[at].speaker]
            if numbers:
                heard[self._called(member)] = numbers
            unread.clear()
            self._read[member] = len(news)
            self.shown[member] = "\n".join([*lines, self.protocol.asked(member)])
        return heard

    def take(self, member: str, action: Action) -> TeamNote:
        """Take a member's reply, which may complete the decision; return what to record of it."""
        text = text_of(action)
        note = TeamNote(does=self.protocol.kind(member, text))
        if self.player:
            note["player"] = self.player
        decision = self.protocol.take(member, text)
        if said := self.protocol.said():
            note["said"] = [
                [self._number(at), self._called(who), *([] if who in self.team.players else [line])]
                for at, (who, line) in enumerate(said, len(self._news))
            ]
            to = self.protocol.audience()
            self.tell(*(_Line(who, line, None if "." in who else to) for who, line in said))
        if within := self.protocol.decided_within():
            note["within"] = {self._called(place): one for place, one in within.items()}
        if decision is not None:
            if facts := self.protocol.facts():
                note["facts"] = facts
            self.deciding = False
            self.decision = action if decision == text else Action(decision)
            if plain(decision) != PASS:
                note["did"] = decision
        return note

    def acted(self) -> None:
        """End the team's turn, once the environment has taken its decision."""
        assert self.decision is not None
        self.tell(_Line("", f"{DID}{text_of(self.decision)}"))
        self.decision, self.deciding = None, False

    def refused(self, why: str, state: str | None) -> None:
        """Let the team decide again, since the environment refused its decision.

        Args:
            why: what the environment answered.
            state: the key of the environment's state; None: unknown.
        """
        assert self.decision is not None
        self.tell(_Line("", f"{DID}{text_of(self.decision)}\nThat was no valid action. {why}"))
        self.decision, self.deciding = None, True
        self.protocol.begin_turn(why, state)

    def key(self) -> tuple[object, ...]:
        """Return the state as something to hash; equal states give equal values."""
        now = self._begun, self.deciding, self.decision, self.forfeited
        return self.protocol.key(), self._digest_of_news(), self._read, *now

    def saved(self) -> Any:
        """Return the state as JSON can hold it."""
        decision = None if self.decision is None else asdict(self.decision)
        told = [self._news, self._digest_of_news(), self._read, self.shown]
        now = [self._begun, self.deciding, decision, self.forfeited]
        return [self.protocol.saved(), told, now]

    def restore(self, saved: Any) -> None:
        """Take back what `saved` returned."""
        protocol, told, now = saved
        self._begun, self.deciding, decision, self.forfeited = now
        news, self._digest, self._read, self.shown = told
        self._add(_Line(*line) for line in news)
        self._digested = len(self._news)
        for member, unread in self._unread.items():
            unread[:] = [at for at in unread if at >= self._read[member]]
        self.protocol.restore(protocol)
        self.decision = None
        if decision is not None:
            call = decision["call"]
            self.decision = Action(decision["text"], None if call is None else ToolCall(**call))

    def _digest_of_news(self) -> str:
        for line in self._news[self._digested :]:
            self._digest = hashed(self._digest, line)
        self._digested = len(self._news)
        return self._digest

    def _add(self, lines: Iterable[_Line]) -> None:
        """Add lines, each for those who see what its speaker says."""
        for at, line in enumerate(lines, len(self._news)):
            self._news.append(line)
            for member, unread in self._seeing(line.speaker):
                if line.to is None or member.partition(".")[0] in line.to:
                    unread.append(at)

    def _seeing(self, speaker: str) -> list[tuple[str, list[int]]]:
        """Return who sees what somebody says, as far as it is not for some of them only.

        With each is where to add what it is to be shown.
        """
        if speaker not in self._readers:
            self._readers[speaker] = [
                (member, unread)
                for member, unread in self._unread.items()
                if not speaker or (member != speaker and self.team.sees(member, speaker))
            ]
        return self._readers[speaker]

    def _number(self, at: int) -> int:
        """Return the number of a line, of which no other team has an equal one."""
        return at * self._of + self._place

    def _called(self, member: str) -> str:
        """Return the name of a member as a player."""
        return f"{self.player}.{member}" if self.player else member

    def _briefing(self, member: str) -> str:
        plays = f" Together you play {self.player}." if self.player else ""
        return _briefing(self.team, member, member, plays)


def text_of(action: Action) -> str:
    """Return an action as a team reads it."""
    return action.text if action.call is None else str(action.call)


def _briefing(team: Team, player: str, name: str, plays: str) -> str:
    """Return what a player is told of its team, and of those around it.

    Args:
        team: of the player.
        player: in the team, or in a team in a member's place.
        name: of the player, to itself.
        plays: a sentence about the outermost team.
    """
    member, _, within = player.partition(".")
    one, others = team.members[member], [m for m in team.there(1, ()) if m != member]
    told = f" {one.instructions}" if one.instructions else ""
    if within:
        inner = _briefing(team.inner[member], within, name, "")
        return f"{inner} Your team is {member} among {', '.join(others)}.{plays}{told}"
    told += f" {skilled(one.skills)}" if one.skills else ""
    if team.formation is not None:  # who else is there is to be found
        return f"You are {name}, and form groups with others.{plays}{told}"
    return f"You are {name}, in a team with {', '.join(others)}.{plays}{told}"
