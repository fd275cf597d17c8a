"""The protocol of stages: for each action a team goes through stages, of which the last decides.

The only chance is the order of `order = "random"`, which follows from the seed and the turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from palaestra.core.team_words import ACCEPT, ASKED, DONE, HALT, PASS, SPAWN, proposal
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.protocol_tables import Stage
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import (
    agree,
    approval,
    borda,
    different,
    majority,
    parse_ballot,
    plain,
)

TALKING = ("talk", "moderate", "bid")
ANSWERED = ("moderate", "bid", "vote")  # with replies of a certain form


@dataclass(slots=True)
class TeamTurn:
    """Where the team is within one of its turns."""

    number: int = 0  # of the turn in the episode
    action: int = 1  # of the environment in the episode, from 1
    spawned: tuple[str, ...] = ()  # members that were brought in during the episode
    at: int = 0  # the stage
    rounds: dict[str, int] = field(default_factory=dict)  # by stage, how often it was repeated
    speaker: str | None = None  # of a moderated stage or a bid: who was chosen to speak
    left: list[str] = field(default_factory=list)  # members that have not replied in this stage
    replies: dict[str, str] = field(default_factory=dict)
    proposals: list[tuple[str, str]] = field(default_factory=list)  # of this turn, by member
    halted: bool = False


class Stages(Protocol):
    """The stages of one team in one episode."""

    def __init__(self, team: Team, seed: int) -> None:
        """Begin the first turn."""
        self.team, self.seed = team, seed
        self.turn = TeamTurn()
        self._said: list[tuple[str, str]] = []  # since the last call of `said`
        self._enter(0)

    @property
    def stage(self) -> Stage:
        """The present stage."""
        return self.team.stage[self.turn.at]

    def next(self) -> list[str]:
        """Return the players that reply now: one, or several at the same time; at least one."""
        turn, stage = self.turn, self.stage
        together = stage.order == "together" and stage.do != "act" and turn.speaker is None
        return [*turn.left] if together else turn.left[:1]

    def asked(self, player: str = "") -> str:
        """Return what a player is asked for, the same for all that reply now in its team."""
        do = self.stage.do
        if self.turn.speaker is not None:
            return ASKED["talk"]
        if do == "vote":
            return self._ballot_paper()
        if do == "act":
            lines = [proposal(member, text) for member, text in self.turn.proposals]
            return "\n".join([*lines, ASKED["act"]])
        return ASKED[do]

    def refusal(self, text: str, player: str = "") -> str | None:
        """Return why a reply to the present stage is none; None: it is one."""
        if not text.strip():
            return "The reply is empty."
        do = self.stage.do
        if self.turn.speaker is not None or do not in ANSWERED or plain(text) == PASS:
            return None
        if do == "moderate" and plain(text) != DONE and self._named(text) is None:
            return f"Name one of {', '.join(self._candidates())}, or say: {DONE}."
        if do == "bid" and not _is_number(text):
            return ASKED["bid"]
        if do == "vote" and parse_ballot(text, len(self._choices())) is None:
            return self._ballot_paper()
        return None

    def kind(self, player: str, text: str) -> str:
        """Return what a reply does: the stage's `do`, or talk, halt, spawn or pass."""
        if plain(text) == PASS:
            return "pass"
        do = self.stage.do
        talks = self.turn.speaker is not None or do == "talk"
        if talks and self._halts(player, text):
            return "halt"
        if talks and self._spawns(player, text):
            return "spawn"
        return "talk" if talks else do

    def take(self, player: str, text: str) -> str | None:
        """Take a member's reply; return the action once the team has decided on one."""
        turn, stage = self.turn, self.stage
        turn.left.remove(player)
        turn.replies[player] = text
        if stage.do == "act":
            if plain(text) != PASS:
                return text
            if turn.left:  # the next member decides in its place
                return None
        if turn.speaker is not None or (stage.do == "talk" and stage.order != "together"):
            self._hear(player, text)
        return None if turn.left else self._after_stage()

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        """Return a random reply of a player to what it is asked; `action` samples an action."""
        if self.turn.speaker is not None or self.stage.do == "talk":
            return rng.choice((PASS, action()))  # about what the team may do
        match self.stage.do:
            case "moderate":
                return rng.choice([*self._candidates(), DONE])
            case "bid":
                return str(rng.randrange(10))
            case "vote":
                return str(1 + rng.randrange(len(self._choices())))
        return action()

    def ideal(self, action: str, player: str = "") -> str:
        """Return the reply of a player that knows the right action."""
        if self.turn.speaker is not None or self.stage.do in TALKING:
            right = all(plain(text) == plain(action) for _, text in self.turn.proposals)
            if self.turn.speaker is None and self.stage.do == "moderate":
                return DONE
            return ACCEPT if self.stage.until == "accept" and right else PASS
        if self.stage.do != "vote":
            return action
        choices = [plain(text) for text in self._choices()]
        return str(1 + choices.index(plain(action))) if plain(action) in choices else "1"

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        """Begin the next turn, once the environment has taken the action or refused it."""
        turn = self.turn
        action = turn.action if observation is None else turn.action + 1
        self.turn = TeamTurn(turn.number + 1, action, turn.spawned)
        self._enter(0)

    def halt(self) -> str | None:
        """End the talk of this turn, with the present stage if that is talk."""
        self.turn.halted = True
        return self._enter(self.turn.at + 1) if self.stage.do in TALKING else None

    def said(self) -> list[tuple[str, str]]:
        """Return speaker and line of all that was said since the last call, in its order."""
        said, self._said = self._said, []
        return said

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        count = 0
        for at, stage in enumerate(self.team.stage):
            again = self.team.stage[at - stage.back : at + 1]
            replies = sum(self._replies(one, each) for one in again)
            count += self._replies(stage, each) + (stage.times - 1) * replies
        return max(1, count)

    def key(self) -> tuple[object, ...]:
        """Return the state as something to hash; equal states give equal values."""
        turn = self.turn
        place = turn.number, turn.at, sorted(turn.rounds.items()), turn.speaker, turn.halted
        return *place, turn.action, turn.spawned, turn.left, turn.replies, turn.proposals

    def saved(self) -> Any:
        """Return the state as JSON can hold it."""
        return asdict(self.turn)

    def restore(self, saved: Any) -> None:
        """Take back what `saved` returned."""
        proposals = [(member, text) for member, text in saved["proposals"]]
        spawned = tuple(saved["spawned"])
        self.turn = TeamTurn(**{**saved, "proposals": proposals, "spawned": spawned})

    # ── details ──────────────────────────────────────────────────────────────

    def _replies(self, stage: Stage, each: Mapping[str, int]) -> int:
        """Return the largest number of replies to a stage."""
        if stage.do in ("count", "moderate"):
            return 0 if stage.do == "count" else 2
        taking_part = sum(each.get(member, 1) for member in self.team.taking_part(stage))
        return taking_part + 1 if stage.do == "bid" else taking_part

    def _taking_part(self, stage: Stage) -> Sequence[str]:
        """Return the members of a stage that are there."""
        there = self.team.there(self.turn.action, self.turn.spawned)
        return [member for member in self.team.taking_part(stage) if member in there]

    def _enter(self, at: int) -> str | None:
        """Begin a stage; return the action if it decides by itself."""
        turn = self.turn
        turn.at, turn.replies, turn.speaker = at, {}, None
        stage = self.team.stage[at]
        if turn.halted and stage.do in TALKING:
            return self._enter(at + 1)
        if stage.do == "count" or (stage.do == "vote" and len(self._choices()) < 2):
            return self._count()
        turn.left = [*self._taking_part(stage)]
        if stage.do == "moderate":
            assert stage.by is not None
            turn.left = [stage.by]
        if stage.order == "random":
            name = f"order {self.seed} {turn.number} {at} {turn.rounds.get(str(at), 0)}"
            random.Random(name).shuffle(turn.left)
        return None

    def _after_stage(self) -> str | None:
        """Go on after all replies to a stage."""
        turn, stage = self.turn, self.stage
        if turn.speaker is not None:  # who was chosen has spoken
            return self._repeat_or_go_on()
        match stage.do:
            case "talk":
                for member, text in turn.replies.items() if stage.order == "together" else ():
                    self._hear(member, text)
            case "propose":
                new = [(m, text) for m, text in turn.replies.items() if plain(text) != PASS]
                kept = [(m, text) for m, text in turn.proposals if m not in turn.replies]
                turn.proposals = kept + new
                self._said += [(member, proposal(member, text)) for member, text in new]
            case "moderate" | "bid":
                chosen = self._chosen()
                if chosen is None:
                    return self._enter(turn.at + 1)
                turn.speaker, turn.left = chosen, [chosen]
                return None
            case "vote":
                return self._voted()
            case "act":  # nobody decided
                return PASS
        return self._repeat_or_go_on()

    def _repeat_or_go_on(self) -> str | None:
        turn, stage = self.turn, self.stage
        done = turn.rounds.get(str(turn.at), 0) + 1
        if done < stage.times and not turn.halted and not self._reached(stage):
            turn.rounds[str(turn.at)] = done
            return self._enter(turn.at - stage.back)
        turn.rounds.pop(str(turn.at), None)
        return self._enter(turn.at + 1)

    def _reached(self, stage: Stage) -> bool:
        """Return whether the repetition of a stage has reached what it is for."""
        if stage.until == "agreement":
            return len(self.turn.proposals) > 1 and agree([t for _, t in self.turn.proposals])
        if stage.until == "accept":
            return all(plain(text).startswith(ACCEPT) for text in self.turn.replies.values())
        return False

    def _hear(self, member: str, text: str) -> None:
        if self._halts(member, text):
            self.turn.halted = True
        elif plain(text) != PASS:
            self.turn.spawned += (*self._spawns(member, text),)
            self._said.append((member, f"{member}: {text}"))

    def _halts(self, member: str, text: str) -> bool:
        return "halt" in self.team.members[member].rights and plain(text) == HALT

    def _spawns(self, member: str, text: str) -> list[str]:
        """Return the member of the reserve that a member brings in by some words, if any."""
        if "spawn" not in self.team.members[member].rights:
            return []
        waiting = [name for name in self.team.reserve if name not in self.turn.spawned]
        return [name for name in waiting if plain(text) == plain(f"{SPAWN} {name}")]

    def _candidates(self) -> list[str]:
        return [m for m in self._taking_part(self.stage) if m != self.stage.by]

    def _named(self, text: str) -> str | None:
        words = re.findall(r"[\w-]+", text.casefold())
        found = [member for member in self._candidates() if member.casefold() in words]
        return found[0] if len(found) == 1 else None

    def _chosen(self) -> str | None:
        """Return who speaks next by the moderator's word or the highest bid; None: nobody."""
        replies = self.turn.replies
        if self.stage.do == "moderate":
            (text,) = replies.values()
            return self._named(text)
        bids = {member: float(text) for member, text in replies.items() if _is_number(text)}
        return max(bids, key=lambda member: bids[member]) if bids else None

    def _choices(self) -> list[str]:
        return different([text for _, text in self.turn.proposals])

    def _ballot_paper(self) -> str:
        lines = [f"{number}: {text}" for number, text in enumerate(self._choices(), 1)]
        return "\n".join([*lines, ASKED[self.stage.rule]])

    def _count(self) -> str:
        texts = [text for _, text in self.turn.proposals]
        return majority(texts) if texts else PASS

    def _voted(self) -> str:
        choices = self._choices()
        given = [parse_ballot(text, len(choices)) for text in self.turn.replies.values()]
        ballots = [ballot for ballot in given if ballot]
        if self.stage.rule == "majority":
            ballots = [ballot[:1] for ballot in ballots]
        count = borda if self.stage.rule == "ranked" else approval
        return choices[count(ballots, len(choices))]


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)  # not NaN
    except ValueError:
        return False
