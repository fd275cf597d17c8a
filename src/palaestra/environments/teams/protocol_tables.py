"""The tables of a team's file that say who replies when: the settings of each protocol."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Table(BaseModel):
    """A table of a team's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(Table):
    """One stage of a team's turn."""

    do: Literal["talk", "propose", "moderate", "bid", "vote", "count", "act"] = Field(
        description="talk: each says something; propose: each proposes an action; moderate: `by` "
        "names who speaks next; bid: the highest bidder speaks; vote: each votes for proposals; "
        "count: the proposals are counted; act: the first of `who` decides on the action"
    )
    who: tuple[str, ...] = Field((), description="members that take part; empty: all")
    by: str | None = Field(None, description="the moderator")
    order: Literal["together", "file", "random"] = Field(
        "together", description="whether they speak at the same time, or one after the other"
    )
    times: int = Field(1, ge=1, le=100, description="how often the stage is repeated")
    until: Literal["agreement", "accept"] | None = Field(
        None,
        description="ends the repetition early: all proposals are equal, or every reply begins "
        "with 'accept'",
    )
    back: int = Field(
        0, ge=0, description="how many stages before this one are repeated with it, if `times` > 1"
    )
    rule: Literal["majority", "approval", "ranked"] = Field(
        "majority",
        description="how votes decide: the most named first, the most approved, or "
        "the best by points for ranks (Borda); proposals are counted by majority",
    )


class Network(Table):
    """A layered network of all members."""

    layers: int = Field(3, ge=2, le=10, description="at most, in one turn")
    keep: int = Field(
        2, ge=1, description="members that answer again after the first layer: the best rated"
    )
    consensus: float = Field(
        2 / 3, gt=0, le=1,
        description="a layer decides if more than this share of its answers are equal; 1: only "
        "the last one decides",
    )  # fmt: skip


class RoutingTable(Table):
    """Decentralised routing, and what a network with it has learned (`palaestra team RUN --to`)."""

    hops: int = Field(2, ge=1, description="how often a task may be forwarded")
    edges: dict[str, dict[str, Annotated[float, Field(ge=0, le=1)]]] = Field(
        default_factory=dict, description="learned: the weight of each used edge, by its source"
    )
    past: dict[str, tuple[tuple[str, bool], ...]] = Field(
        default_factory=dict, description="learned: each member's tasks, and whether it solved them"
    )


class Orchestration(Table):
    """A member that gives work to the others, in place of stages."""

    member: str = Field(description="who keeps the ledgers and says who does what")
    stalls: int = Field(2, ge=1, description="turns without progress before a new plan")
    rounds: int = Field(
        3, ge=1, le=100, description="workers asked in a turn before it must decide itself"
    )


class Formation(Table):
    """A member that finds others, and forms groups with them, by what has to be done."""

    member: str = Field(description="the host, who begins alone and decides on the action")
    invited: int = Field(3, ge=1, description="members that join by one search, at most")
    depth: int = Field(2, ge=1, le=3, description="groups in each other; 1: workers form none")
    steps: int = Field(
        10, ge=1, le=50, description="replies of a host, before it can only wait and conclude"
    )
    places: Literal["register", "make"] = Field(
        "register",
        description="how members of the reserve come in: by registering with their skills when "
        "somebody is searched for, or made by a host who says their skills",
    )


class Supervision(Table):
    """A member that may halt a team that repeats itself."""

    member: str = Field(description="who is asked whether the team goes on")
    repeats: int = Field(
        3,
        ge=2,
        description="how often a member says the same in one turn, the team takes the same action "
        "in a row, or the environment is in the same state, before it is asked",
    )
