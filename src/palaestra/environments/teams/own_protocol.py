"""Protocols written in Python: a generator asks members, and returns the action of the team.

    class SecondOpinion(pa.TeamProtocol):
        members = {"first": {}, "second": {}, "judge": {"instructions": "Take the better one."}}

        def turn(self):
            first, second = yield self.propose("first", "second")
            if first == second:
                return first
            return (yield self.act("judge"))[0]

A generator cannot be saved, so the state of a turn is the replies so far: `restore` runs `turn`
again with them. Therefore `turn` may depend on its replies, `observation`, `rng` and `memory` only,
which is tried when the class is loaded.
"""

from __future__ import annotations

import inspect
import json
import random
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple

from palaestra.core.errors import InputError
from palaestra.core.paths import import_named, is_missing
from palaestra.core.team_words import ASKED, PASS, proposal
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.team_file import Right, Team, checked
from palaestra.environments.teams.votes import plain

KEYS = ("members", "see", "edges", "turns", "tokens")
"""The keys of a team's file that are class attributes."""
TRIED = 3  # turns in which a class is tried for each way to reply


class Question(NamedTuple):
    """A question to members, who reply at the same time."""

    do: Literal["talk", "propose", "act"]
    who: tuple[str, ...]
    text: str


Asking = Generator[Question, list[str | None], str | None]
"""Yields questions, is sent the reply of each member (None: it passes), and returns the action.

The action None means that nobody decided: the episode ends, as with `PASS`.
"""


class TeamProtocol(Protocol):
    """A team in Python: subclasses set `members` and define `turn`.

    Other attributes with the names of keys of a team's file mean the same as there.
    """

    watches = True  # `turn` may read the observation

    members: ClassVar[Mapping[str, Mapping[str, Any]]]
    """The tables of the members, by name, as in a team's file."""
    see: ClassVar[str]
    edges: ClassVar[Mapping[str, Sequence[str]]]
    turns: ClassVar[int]
    tokens: ClassVar[int]
    replies: ClassVar[int] = 20
    """At most in one turn; a turn that asks for more ends without a decision."""

    memory: dict[str, Any]
    """What the team remembers from turn to turn, as JSON; empty at first."""
    observation: str
    """What the environment shows."""
    rng: random.Random
    """The only source of chance; from the seed and the number of the turn."""

    def __init__(self, team: Team, seed: int) -> None:
        """Begin the first turn; subclasses keep what they need in `memory`."""
        self.team, self.seed = team, seed
        self.memory, self.observation = {}, ""
        self._number = -1
        self._said: list[tuple[str, str]] = []
        self.begin_turn()

    @abstractmethod
    def turn(self) -> Asking:
        """Question members for one action of the environment, and return it."""

    def talk(self, *who: str, asked: str = ASKED["talk"]) -> Question:
        """Return a question to members, whose replies the others hear.

        Raises:
            InputError: one of them is no member, or has no right to send.
        """
        return self._to("talk", who, asked, "send")

    def propose(self, *who: str) -> Question:
        """Return the question for proposals, which the others hear once all are made.

        Raises:
            InputError: one of them is no member, or has no right to act.
        """
        return self._to("propose", who, ASKED["propose"], "act")

    def act(self, member: str) -> Question:
        """Return the question for a decision to a member, who reads the proposals of this turn.

        Raises:
            InputError: it is no member, or has no right to act.
        """
        lines = [proposal(name, text) for name, text in self._proposals.items()]
        return self._to("act", (member,), "\n".join([*lines, ASKED["act"]]), "act")

    # ── the protocol ─────────────────────────────────────────────────────────

    def begin(self, observation: str, state: str | None = None) -> None:
        self.observation = observation

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        self._number += 1
        self.observation = self.observation if observation is None else observation
        self._before = self._as_json()
        self._taken: list[tuple[str, str]] = []  # replies of this turn, by member
        self._run: Asking | None = None  # begins once it is asked who replies

    def next(self) -> list[str]:
        self._begun()
        return [name for name in self._question.who if name not in self._replied]

    def asked(self, player: str = "") -> str:
        self._begun()
        return self._question.text

    def refusal(self, text: str, player: str = "") -> str | None:
        return None if text.strip() else "The reply is empty."

    def kind(self, player: str, text: str) -> str:
        self._begun()
        return "pass" if plain(text) == PASS else self._question.do

    def take(self, player: str, text: str) -> str | None:
        self._begun()
        self._taken.append((player, text))
        self._replied[player] = None if plain(text) == PASS else text
        if len(self._replied) < len(self._question.who):
            return None
        replies = [self._replied[name] for name in self._question.who]
        for name, reply in zip(self._question.who, replies, strict=True):
            self._hear(name, reply)
        return self._go_on(replies)

    def said(self) -> list[tuple[str, str]]:
        said, self._said = self._said, []
        return said

    def halt(self) -> str | None:
        return None  # these teams have no supervisor

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        self._begun()
        return rng.choice((PASS, action())) if self._question.do == "talk" else action()

    def ideal(self, action: str, player: str = "") -> str:
        self._begun()
        return PASS if self._question.do == "talk" else action

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        return self.replies * max(each.get(name, 1) for name in self.team.members)

    def key(self) -> tuple[object, ...]:
        return self._number, self._before, self.observation, self._taken

    def saved(self) -> Any:
        return [self._number, self._before, self.observation, [*self._taken]]

    def restore(self, saved: Any) -> None:
        self._number, self._before, self.observation, taken = saved
        self.memory = json.loads(self._before)
        self._taken, self._run = [], None
        for player, text in taken:
            self.take(player, text)
        self._said = []

    @property
    def cut(self) -> bool:
        """Whether the turn ends without a decision, since it asked for too many replies."""
        return self._asked > self.replies

    # ── details ──────────────────────────────────────────────────────────────

    def _begun(self) -> None:
        """Begin the turn if it has not begun."""
        if self._run is not None:
            return
        self.rng = random.Random(f"turn {self.seed} {self._number}")
        self._proposals: dict[str, str] = {}
        self._run = self.turn()
        self._asked = 0  # members, in this turn
        if self._go_on(None) is not None:
            raise self._wrong("asks nobody in a turn; yield a question before you return")

    def _go_on(self, replies: list[str | None] | None) -> str | None:
        """Run `turn` to its next question; return the action if it ends."""
        assert self._run is not None
        try:
            question = next(self._run) if replies is None else self._run.send(replies)
        except StopIteration as end:
            decision = PASS if end.value is None else end.value
            if not isinstance(decision, str):
                raise self._wrong(f"returns {decision!r}; return a text, or None") from None
            return decision
        if not isinstance(question, Question):
            raise self._wrong(f"yields {question!r}; yield self.talk, self.propose or self.act")
        self._asked += len(question.who)
        if self.cut:
            return PASS
        self._question, self._replied = question, dict[str, str | None]()
        return None

    def _hear(self, member: str, reply: str | None) -> None:
        if reply is None:
            return
        if self._question.do == "propose":
            self._proposals[member] = reply
            self._said.append((member, proposal(member, reply)))
        elif self._question.do == "talk":
            self._said.append((member, f"{member}: {reply}"))

    def _to(
        self, do: Literal["talk", "propose", "act"], who: tuple[str, ...], text: str, right: Right
    ) -> Question:
        if not who or len(set(who)) < len(who):
            raise self._wrong(f"calls self.{do}({', '.join(who)}); name members, each once")
        for name in who:
            if name not in self.team.members:
                known = ", ".join(self.team.members)
                raise self._wrong(f"asks '{name}', who is no member; name one of {known}")
            if right not in self.team.members[name].rights:
                raise self._wrong(f"lets '{name}' {do} without the right '{right}'; add it")
        return Question(do, who, text)

    def _as_json(self) -> str:
        try:
            return json.dumps(self.memory, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"keeps no JSON in self.memory: {error}") from None

    def _wrong(self, reason: str) -> InputError:
        return InputError(f"The team '{type(self).__name__}' {reason}.")


class OwnTeam(Team):
    """A team whose protocol is a class."""

    own: type[TeamProtocol]

    @property
    def protocols(self) -> tuple[object, ...]:
        return (self.own,)


def names_class(name: str) -> bool:
    """Return whether a name is one of a class, `module:Class`."""
    module, _, attribute = name.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), attribute))


def team_named(name: str) -> Team:
    """Return the team of a class `module:Class`.

    Raises:
        InputError: there is no such class, or it describes no team that can act.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_named(module), attribute, None)
    except ImportError as error:
        if not is_missing(module, error):
            raise
        raise InputError(
            f"The module '{module}' of the team '{name}' was not found; change to the folder of "
            "its file, or add that folder to PYTHONPATH."
        ) from error
    if not (isinstance(found, type) and issubclass(found, TeamProtocol)):
        raise InputError(
            f"'{name}' is not a subclass of palaestra's TeamProtocol; name one as the team."
        )
    return _described(found, name)


@cache
def _described(cls: type[TeamProtocol], name: str) -> OwnTeam:
    """Return the team of a class, which is tried; raise InputError if it could not act."""
    if not inspect.isgeneratorfunction(cls.turn):
        raise InputError(f"The team '{name}' has no `turn` that yields questions; define it.")
    if cls.replies < 1:
        raise InputError(f"The team '{name}' allows {cls.replies} replies; allow 1 or more.")
    team = checked(
        name,
        {"own": cls, **{key: getattr(cls, key) for key in KEYS if hasattr(cls, key)}},
        OwnTeam,
    )
    for member, one in team.members.items():
        if "halt" in one.rights or (one.from_turn, one.until_turn) != (1, None):
            raise InputError(
                f"The team '{name}' gives '{member}' turns of its own or the right to halt, which "
                "`turn` decides; leave them out."
            )
    for reply in (PASS, "yes", "reply {}"):
        _try(name, team, reply)
    return team


def _try(name: str, team: OwnTeam, reply: str) -> None:
    """Raise InputError if turns with such replies do not end, or cannot be resumed.

    Args:
        name: of the team.
        team: that is tried, from its beginning.
        reply: of all members; "{}" stands for the number of the reply.
    """
    protocol = team.own(team, 0)
    protocol.begin("")
    numbers = count(1)
    for _ in range(TRIED):
        decision: str | None = None
        while decision is None:
            text = reply.format(next(numbers))
            resumed = team.own(team, 0)
            try:
                resumed.restore(json.loads(json.dumps(protocol.saved())))
                same = resumed.next() == protocol.next() and resumed.asked() == protocol.asked()
                member = protocol.next()[0]
                decision = protocol.take(member, text)
                same = same and resumed.take(member, text) == decision
            except InputError:
                raise
            except Exception:  # it expects an observation of its environment, not an empty one
                return
            if not same:
                raise InputError(
                    f"The team '{name}' goes on in another way once it was resumed; keep what it "
                    "remembers in self.memory, and sample with self.rng."
                )
        if protocol.cut:
            raise InputError(
                f"The team '{name}' asks for more than {team.own.replies} replies in a turn if "
                f"they are '{text}'; let `turn` return before, or raise `replies`."
            )
        protocol.begin_turn("")
