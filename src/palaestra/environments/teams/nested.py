"""Teams in members' places: each has a protocol of its own, and what it decides is the reply."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.core.team_words import PASS
from palaestra.environments.teams.protocol import (
    ONE_EACH,
    InnerDecision,
    Protocol,
    protocol_of,
)


class Nested(Protocol):
    """A team's protocol around those of the teams in its members' places."""

    def __init__(self, outer: Protocol) -> None:
        """Begin the first turn of all teams; `outer` knows members only."""
        self.outer, self.team, self.seed = outer, outer.team, outer.seed
        self.inner = {name: protocol_of(one, self.seed) for name, one in self.team.inner.items()}
        self.watches = any(one.watches for one in (outer, *self.inner.values()))
        self._said: list[tuple[str, str]] = []  # since the last call of `said`
        self._within: dict[str, InnerDecision] = {}  # see `decided_within`

    def next(self) -> list[str]:
        found: list[str] = []
        for member in self.outer.next():
            if member in self.inner:
                found += [f"{member}.{player}" for player in self.inner[member].next()]
            else:
                found.append(member)
        return found

    def asked(self, player: str = "") -> str:
        member, _, within = player.partition(".")
        asked = self.outer.asked(member)
        if not within:
            return asked
        return f"Your team {member} is asked: {asked}\n{self.inner[member].asked(within)}"

    def refusal(self, text: str, player: str = "") -> str | None:
        member, _, within = player.partition(".")
        return (
            self.inner[member].refusal(text, within) if within else self.outer.refusal(text, member)
        )

    def kind(self, player: str, text: str) -> str:
        member, _, within = player.partition(".")
        return self.inner[member].kind(within, text) if within else self.outer.kind(member, text)

    def take(self, player: str, text: str) -> str | None:
        """Take a player's reply; if what an inner team decides is no reply, its member passes."""
        member, _, within = player.partition(".")
        self._within = {}
        if within:
            inner = self.inner[member]
            decision = inner.take(within, text)
            deeper = inner.decided_within()
            self._within = {f"{member}.{name}": one for name, one in deeper.items()}
            self._said += [(f"{member}.{speaker}", line) for speaker, line in inner.said()]
            if decision is None:
                return None
            self._within[member] = InnerDecision(did=decision, facts=inner.facts())
            inner.begin_turn()
            text = decision if self.outer.refusal(decision) is None else PASS
        decision = self.outer.take(member, text)
        self._said += self.outer.said()
        return decision

    def said(self) -> list[tuple[str, str]]:
        said, self._said = self._said, []
        return said

    def audience(self) -> Sequence[str] | None:
        return self.outer.audience()

    def begin(self, observation: str, state: str | None = None) -> None:
        for one in (self.outer, *self.inner.values()):
            one.begin(observation, state)

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        for one in (self.outer, *self.inner.values()):
            one.begin_turn(observation, state)

    def facts(self) -> dict[str, Any]:
        return self.outer.facts()

    def decided_within(self) -> dict[str, InnerDecision]:
        return self._within

    def halt(self) -> str | None:
        return self.outer.halt()

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        member, _, within = (player or self.next()[0]).partition(".")
        if within:
            return self.inner[member].sample(rng, action, within)
        return self.outer.sample(rng, action, member)

    def ideal(self, action: str, player: str = "") -> str:
        member, _, within = (player or self.next()[0]).partition(".")
        reply = self.outer.ideal(action, member)
        return self.inner[member].ideal(reply, within) if within else reply

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        return self.outer.most_replies(
            {**each, **{name: one.most_replies() for name, one in self.inner.items()}}
        )

    def key(self) -> tuple[object, ...]:
        return *self.outer.key(), [one.key() for one in self.inner.values()]

    def saved(self) -> Any:
        return [self.outer.saved(), {name: one.saved() for name, one in self.inner.items()}]

    def restore(self, saved: Any) -> None:
        outer, inner = saved
        self.outer.restore(outer)
        for name, one in self.inner.items():
            one.restore(inner[name])
