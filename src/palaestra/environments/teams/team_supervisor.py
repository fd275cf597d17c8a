"""The supervisor of a team: one member is asked whether to halt a team that repeats itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from palaestra.core.team_words import ASKED, GO_ON, HALT, PASS
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.protocol_tables import Supervision
from palaestra.environments.teams.votes import plain


@dataclass(slots=True)
class Repeats:
    """What was repeated so far, and the question to the supervisor."""

    lines: dict[str, int] = field(default_factory=dict)  # said in this turn, how often
    states: dict[str, int] = field(default_factory=dict)  # of the environment, how often reached
    action: str = ""  # the last one
    in_a_row: int = 0  # how often it was taken
    question: str = ""  # what repeats; empty: nothing is asked
    decision: str | None = None  # the action that waits for the answer
    talk: bool = False  # whether it is the talk of this turn that repeats


class Supervised(Protocol):
    """A protocol that is interrupted by a question to the supervisor, who may halt it.

    To halt ends the talk of the turn where messages or proposals repeat, and the episode where
    actions or states do. After each question all counts begin again.
    """

    def __init__(self, inner: Protocol, settings: Supervision) -> None:
        """Begin with nothing repeated."""
        self.inner, self.settings = inner, settings
        self.team, self.seed = inner.team, inner.seed
        self.watches = True
        self.seen = Repeats()
        self._said: list[tuple[str, str]] = []

    def next(self) -> list[str]:
        return [self.settings.member] if self.seen.question else self.inner.next()

    def asked(self, player: str = "") -> str:
        if self.seen.question:
            return f"{self.seen.question}\n{ASKED['supervise']}"
        return self.inner.asked(player)

    def refusal(self, text: str, player: str = "") -> str | None:
        if not self.seen.question:
            return self.inner.refusal(text, player)
        return None if plain(text) in (HALT, GO_ON, PASS) else ASKED["supervise"]

    def kind(self, player: str, text: str) -> str:
        if not self.seen.question:
            return self.inner.kind(player, text)
        return "halt" if plain(text) == HALT else "supervise"

    def take(self, player: str, text: str) -> str | None:
        """Take a reply; that of a supervisor who passes lets the team go on."""
        if self.seen.question:
            return self._answered(plain(text) == HALT)
        alone = len(self.inner.next()) == 1  # nobody else replies at the same time
        decision = self.inner.take(player, text)
        said = self.inner.said()
        self._said += said
        often = [line for _, line in said if self._counted(line) >= self._limit]
        if decision is not None:
            return self._decided(decision)
        if often and alone:
            self.seen.question = f"Said {self._limit} times in this turn: {often[0]}"
            self.seen.talk = True
        return None

    def said(self) -> list[tuple[str, str]]:
        said, self._said = self._said, []
        return said

    def begin(self, observation: str, state: str | None = None) -> None:
        self.inner.begin(observation, state)
        if state is not None:
            self.seen.states[state] = 1

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        self.inner.begin_turn(observation, state)
        self.seen.lines = {}
        if state is not None:
            count = self.seen.states.get(state, 0) + 1
            self.seen.states[state] = count
            if count >= self._limit:
                self.seen.question = (
                    f"The environment is in the same state as {count - 1} times before."
                )

    def facts(self) -> dict[str, Any]:
        return self.inner.facts()

    def halt(self) -> str | None:
        return self.inner.halt()

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        if self.seen.question:
            return rng.choice([HALT, GO_ON])
        return self.inner.sample(rng, action, player)

    def ideal(self, action: str, player: str = "") -> str:
        return GO_ON if self.seen.question else self.inner.ideal(action, player)

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        most = self.inner.most_replies(each)
        # a line is counted once for each reply; an action and a state once for each turn
        return most + each.get(self.settings.member, 1) * (most // self._limit + 2)

    def key(self) -> tuple[object, ...]:
        seen = asdict(self.seen)
        return *self.inner.key(), *(
            sorted(value.items()) if isinstance(value, dict) else value for value in seen.values()
        )

    def saved(self) -> Any:
        return [self.inner.saved(), asdict(self.seen)]

    def restore(self, saved: Any) -> None:
        inner, seen = saved
        self.inner.restore(inner)
        self.seen = Repeats(**seen)

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _limit(self) -> int:
        return self.settings.repeats

    def _counted(self, line: str) -> int:
        """Return how often a line was said in this turn, with this time."""
        count = self.seen.lines.get(plain(line), 0) + 1
        self.seen.lines[plain(line)] = count
        return count

    def _decided(self, decision: str) -> str | None:
        """Return an action to take now; None: the supervisor is asked first."""
        if decision == PASS:
            return PASS
        seen = self.seen
        seen.in_a_row = seen.in_a_row + 1 if plain(decision) == seen.action else 1
        seen.action = plain(decision)
        if seen.in_a_row < self._limit:
            return decision
        seen.question = f"The same action, {seen.in_a_row} times in a row: {decision}"
        seen.decision = decision
        return None

    def _answered(self, halts: bool) -> str | None:
        """Go on, or halt, as the supervisor says."""
        seen = self.seen
        decision, talk = seen.decision, seen.talk
        # the action that waits is the first one of those counted from here on
        self.seen = Repeats(action=seen.action, in_a_row=1) if decision else Repeats()
        if not halts:
            return decision
        if not talk:
            return PASS
        decision = self.inner.halt()
        return None if decision is None else self._decided(decision)
