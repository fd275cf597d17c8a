"""Team files: members, and the protocol of each of their turns, in TOML.

    [members.solver]
    instructions = "Solve it."
    [members.critic]
    instructions = "Say what is wrong."
    rights = ["send"]

    [[stage]]
    do = "propose"
    who = ["solver"]
    [[stage]]
    do = "talk"
    who = ["critic"]
    [[stage]]
    do = "act"
    who = ["solver"]

For each action of the environment the team goes through its stages; the last one decides on it. In
place of stages, `[network]` or `[routing]` is the protocol (`layered_network.py`, `routing.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from palaestra.core.budget import Budget, Late
from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.teams import layouts
from palaestra.environments.teams.protocol_tables import (
    Formation,
    Network,
    Orchestration,
    RoutingTable,
    Stage,
    Supervision,
    Table,
)
from palaestra.environments.teams.team_checks import (
    wrong_attendance,
    wrong_formation,
    wrong_leader,
    wrong_network,
    wrong_reserve,
    wrong_routing,
)

Right = Literal["act", "send", "halt", "spawn"]

DECIDING = ("act", "count", "vote")
OF_TEAMS = {"team", "instructions", "rights", "skills", "from_turn", "until_turn", "reserve"}
"""What a member can have in whose place there is a team; the rest its members have."""

TEMPLATES = files("palaestra.environments.teams") / "templates"


class Member(Table):
    """One member of a team."""

    instructions: str = Field("", description="what this member is told besides the rules")
    agent: str = Field("direct", description="the agent that plays it, as in `--agent`")
    team: str | None = Field(
        None, description="a team in its place, as in `--team`: what it decides is the reply"
    )
    model: str | None = Field(None, description="its model, as in `--model`; unset: the team's")
    rights: tuple[Right, ...] = Field(
        ("act", "send"),
        description="act: propose and take actions; send: talk; halt: end the talk; spawn: bring "
        "in members of the reserve",
    )
    skills: str = Field("", description="what it is good at, by which work is given to it")
    from_turn: int = Field(1, ge=1, description="the first turn in which it is there")
    until_turn: int | None = Field(None, ge=1, description="the last one; unset: to the end")
    reserve: bool = Field(False, description="it is not there until it is brought in")

    def there(self, turn: int) -> bool:
        """Return whether it is there in a turn, unless it is in reserve."""
        return self.from_turn <= turn and (self.until_turn is None or turn <= self.until_turn)

    turns: int | None = Field(None, ge=1, description="replies; one that needs more forfeits")
    tokens: int | None = Field(None, ge=1, description="tokens that it may sample, likewise")
    seconds: float | None = Field(None, gt=0, description="in which it may think, likewise")
    turn_seconds: float | None = Field(
        None,
        gt=0,
        description="in which it thinks about one reply; what a late one costs is `late`",
    )
    late: Late = Field("pass", description="pass: it says nothing in this turn; forfeit")

    @property
    def limits(self) -> Budget:
        """The member's own limits."""
        return Budget(
            self.turns,
            self.tokens,
            seconds=self.seconds,
            turn_seconds=self.turn_seconds,
            late=self.late,
        )


class Team(Table):
    """Members and their protocol."""

    members: dict[str, Member] = Field(min_length=2)
    stage: tuple[Stage, ...] = ()
    orchestrator: Orchestration | None = None
    network: Network | None = None
    routing: RoutingTable | None = None
    formation: Formation | None = None
    supervisor: Supervision | None = None
    see: Literal["all", "own", "neighbours"] = Field(
        "all",
        description="whose words a member sees: of all, of nobody, or of its neighbours",
    )
    edges: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="with see = 'neighbours': whom each member sees"
    )
    turns: int | None = Field(None, ge=1, description="replies of all members in an episode")
    tokens: int | None = Field(None, ge=1, description="tokens that all may sample in an episode")

    @property
    def protocols(self) -> tuple[object, ...]:
        """What says who replies when; one of a team that can act."""
        tables = (self.orchestrator, self.network, self.routing, self.formation)
        return tuple(one for one in (self.stage or None, *tables) if one is not None)

    @property
    def limits(self) -> Budget:
        """The limits of the team as a whole; beyond them all members forfeit."""
        return Budget(self.turns, self.tokens)

    @cached_property
    def inner(self) -> dict[str, Team]:
        """The teams in place of members."""
        return {name: load(one.team) for name, one in self.members.items() if one.team is not None}

    @cached_property
    def players(self) -> dict[str, Member]:
        """All that reply: members, and those of teams in their place as `member.inner`."""
        found: dict[str, Member] = {}
        for name, member in self.members.items():
            if name in self.inner:
                inner = self.inner[name].players
                found.update((f"{name}.{player}", one) for player, one in inner.items())
            else:
                found[name] = member
        return found

    @property
    def reserve(self) -> list[str]:
        """The members that are not there until they are brought in."""
        return [name for name, member in self.members.items() if member.reserve]

    @property
    def places(self) -> set[str]:
        """The players in whose places somebody registers, here and in teams in members' places."""
        registers = self.formation is not None and self.formation.places == "register"
        found = set(self.reserve) if registers else set()
        for name, team in self.inner.items():
            found |= {f"{name}.{place}" for place in team.places}
        return found

    def there(self, turn: int, spawned: Sequence[str]) -> list[str]:
        """Return the members that are there in a turn, from 1, with those brought in before."""
        return [
            name
            for name, member in self.members.items()
            if member.there(turn) and (not member.reserve or name in spawned)
        ]

    def taking_part(self, stage: Stage) -> tuple[str, ...]:
        """Return the members of a stage, in the order of the file.

        The supervisor takes part in stages that name it.
        """
        apart = self.supervisor.member if self.supervisor is not None else None
        return tuple(m for m in self.members if (m in stage.who if stage.who else m != apart))

    def sees(self, reader: str, speaker: str) -> bool:
        """Return whether one player sees what another one says.

        What is said in a team stays there; what it decides is seen as a member's word.
        """
        reads, _, reader_in = reader.partition(".")
        speaks, _, speaker_in = speaker.partition(".")
        if speaker_in:
            return reads == speaks and self.inner[reads].sees(reader_in, speaker_in)
        return reads != speaks and self._sees(reads, speaks)

    def _sees(self, reader: str, speaker: str) -> bool:
        if self.orchestrator is not None and reader == self.orchestrator.member:
            return True
        if self.see == "neighbours":
            return speaker in self.edges.get(reader, ())
        return self.see == "all"


AnyTeam = TypeVar("AnyTeam", bound=Team)


def load(name: str, within: Sequence[str] = ()) -> Team:
    """Return the team of a template, a layout for robots, a TOML file or a Python class.

    Args:
        name: of the template or the file, a layout and a number, such as `hmas-2:4`, or
            `module:Class`.
        within: the names of the teams around it.

    Raises:
        UnknownName: there is no such template or file.
        InputError: the file or class cannot be used, or teams are in each other.
    """
    from palaestra.environments.teams import own_protocol

    if name in within:
        raise InputError(
            f"The teams {' and '.join(dict.fromkeys((*within, name)))} are in each other; take "
            "one of them out."
        )
    template = TEMPLATES / f"{name}.toml"
    path = Path(name)
    if (generated := layouts.team_of(name)) is not None:
        team = parse(name, generated)
    elif template.is_file():
        team = parse(name, template.read_text(encoding="utf-8"))
    elif path.is_file():
        team = parse(name, path.read_text(encoding="utf-8", errors="replace"))
    elif own_protocol.names_class(name):
        team = own_protocol.team_named(name)
    else:
        raise UnknownName("team", name, templates())
    for member in team.members.values():
        if member.team is not None and load(member.team, (*within, name)).limits != Budget():
            raise InputError(
                f"The team '{member.team}' has limits, which only a team that acts in an "
                f"environment can have, and it is in the team '{name}'; leave them out."
            )
    return team


def parse(name: str, text: str) -> Team:
    """Return the team that a TOML text describes; raise InputError if it cannot be used."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The team '{name}' is no TOML: {error}; correct the file.") from None
    return checked(name, table, Team)


def checked(name: str, table: Mapping[str, Any], kind: type[AnyTeam]) -> AnyTeam:
    """Return the team with the keys of a table; raise InputError if it could not act."""
    try:
        team = kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"The team '{name}': '{where}': {first['msg']}; correct it.") from None
    _check(name, team)
    return team


def templates() -> list[str]:
    """Return the names of the teams that come with palaestra."""
    return sorted(path.name.removesuffix(".toml") for path in TEMPLATES.iterdir())


def _check(name: str, team: Team) -> None:
    """Raise InputError for a team that could not act."""
    known = ", ".join(team.members)

    def wrong(reason: str) -> InputError:
        return InputError(f"The team '{name}' {reason}.")

    if len(team.protocols) != 1:
        known_tables = "[[stage]], [orchestrator], [network], [routing] or [formation]"
        raise wrong(f"must have one protocol: {known_tables}")
    for number, stage in enumerate(team.stage, 1):
        where = f"stage {number} ({stage.do})"
        for member in (*stage.who, *([stage.by] if stage.by else ())):
            if member not in team.members:
                raise wrong(f"names '{member}' in {where}, who is no member; name one of {known}")
        if (stage.by is None) == (stage.do == "moderate"):
            raise wrong(f"must name `by`, the moderator, in stages that moderate only; see {where}")
        if stage.back >= number:
            raise wrong(f"goes back {stage.back} stages from {where}, before the first one")
        right: Right | None = {"talk": "send", "bid": "send", "moderate": "send"}.get(stage.do)  # type: ignore[assignment]
        right = "act" if stage.do in ("propose", "act") else right
        for member in team.taking_part(stage) if right else ():
            if right not in team.members[member].rights:
                raise wrong(f"lets '{member}' take part in {where} without the right '{right}'")
        if stage.do in DECIDING and stage.times > 1:
            raise wrong(f"repeats {where}, which decides; repeat the stages before it")
    decisions = [number for number, stage in enumerate(team.stage) if stage.do in DECIDING]
    if team.stage and decisions != [len(team.stage) - 1]:
        raise wrong("must decide in its last stage, and only there: by act, count or vote")
    if (
        team.stage
        and team.stage[-1].do in ("count", "vote")
        and not any(s.do == "propose" for s in team.stage)
    ):
        raise wrong("counts proposals, and no stage proposes; add one")
    for member, one in team.members.items():
        if "." in member or "/" in member:
            raise wrong(f"has a member '{member}'; leave '.' and '/' out of names")
        if one.team is not None and one.model_fields_set - OF_TEAMS:
            own = ", ".join(sorted(one.model_fields_set - OF_TEAMS))
            raise wrong(f"gives '{member}' a team, whose file has its members' {own}; drop them")
        if one.turn_seconds is None and "late" in one.model_fields_set:
            raise wrong(f"says what happens if '{member}' is late, and not when; set turn_seconds")
    for reader, seen in team.edges.items():
        for member in (reader, *seen):
            if member not in team.members:
                raise wrong(f"has an edge to '{member}', who is no member; name one of {known}")
    if (team.see == "neighbours") != bool(team.edges):
        raise wrong("must set edges with see = 'neighbours', and only then")
    for wrong_part in (
        wrong_leader,
        wrong_attendance,
        wrong_reserve,
        wrong_network,
        wrong_routing,
        wrong_formation,
    ):
        reason = wrong_part(team)
        if reason is not None:
            raise wrong(reason)
