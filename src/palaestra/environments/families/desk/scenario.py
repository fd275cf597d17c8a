"""What a conversation at a desk is about: a user's hidden goals, and the desk that they call."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.compiler.verbs import Verb
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import State
from palaestra.environments.families.apps.stock import stock_app

EMPLOYEE = MAIN  # the id of the person at the desk, for whom the agent acts
IDENTIFIER = re.compile(r"[\w.+-]+@[\w-]+(?:\.\w+)+|\w*\d[\w-]*\d\w*")
"""What a user cannot know by chance: an address, or a word with two digits."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Something that a desk may ask a user for."""

    asked: str  # the pattern of a question for it
    question: str  # how it is asked for
    words: tuple[str, ...]  # ways to state it, with {value}
    form: str = ""  # the pattern of its values, where a message can be told from its own


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a user wants."""

    words: tuple[str, ...]  # ways to ask for it
    calls: tuple[Call, ...] = ()  # what must be done for it, in order; the phone's by the user
    facts: tuple[str, ...] = ()  # what asking for it must state
    refused: bool = False  # the policy forbids it
    answer: Any = None  # what the user must be told, if anything
    needs: tuple[str, ...] = ()  # slots that it leaves open, and that the agent must ask for


@dataclass(frozen=True, slots=True)
class Scenario:
    """A user, what they know, and what they want."""

    customer: int
    name: str
    persona: str  # see `user.PERSONAS`
    known: Mapping[str, str]  # values of slots, which the user states when asked
    forgotten: frozenset[str]  # slots that the user should know, and does not
    wishes: tuple[Wish, ...]  # the first one opens; each further one comes up after the one before
    change: Wish | None = None  # takes the place of the first, when the user is to confirm that

    @property
    def final(self) -> tuple[Wish, ...]:
        """The wishes that hold in the end."""
        first = self.wishes[0] if self.change is None else self.change
        return (first, *self.wishes[1:])

    @property
    def answers(self) -> tuple[Any, ...]:
        """What the user must be told."""
        return tuple(wish.answer for wish in self.final if wish.answer is not None)

    @property
    def answer(self) -> Any:
        """The first thing that the user must be told; None if nothing."""
        return next(iter(self.answers), None)


class Draft(NamedTuple):
    """A world in which a request is drawn."""

    state: State
    people: Sequence[Person]
    rng: random.Random
    permitted: bool  # of twins: whether the policy permits what is asked

    def customer(self) -> Person:
        """Draw somebody who calls."""
        return self.rng.choice(self.people[1:])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request."""

    name: str
    draw: Callable[[Draft], Scenario]
    twin: bool = False  # the same words occur where the policy permits it, and where it does not


@dataclass(frozen=True, slots=True)
class Gesture:
    """What a user can do with a tool of their own, as it is asked for in words."""

    asked: str  # the pattern of a request for it
    topic: str  # the pattern of any message about it
    api: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def call(self) -> Call:
        return Call(self.api, self.arguments)


@dataclass(frozen=True, eq=False)
class ServiceDesk:
    """A desk: its apps, its policy, who calls, and what they want."""

    name: str  # also of its app
    about: str  # the company, as the agent reads it
    verbs: Mapping[str, tuple[Verb, ...]]  # by app; the first is the company's
    rules: tuple[Rule, ...]
    slots: Mapping[str, Slot]
    kinds: tuple[Kind, ...]
    populate: Callable[[State, Sequence[Person], random.Random], None]
    """Inserts the rows of a world with these people; the first one works at the desk."""
    identity: tuple[str, ...] = ()  # the slots that show who a user is
    identify: Callable[[Mapping[str, str]], Call] | None = None
    """Returns the call that checks who a user is, from what they know; None: they are known."""
    gestures: tuple[Gesture, ...] = ()
    stock: tuple[str, ...] = ()  # apps that come with the library, which the agent uses as well
    users: frozenset[str] = frozenset()  # apps that only the user has
    for_user: bool = False  # the agent acts in the name of the user, not of the company

    @cached_property
    def suite(self) -> Suite:
        """The desk's apps, and the one that knows people."""
        folder = files("palaestra.environments.families.desk.desks")
        own = [
            App(parse((folder / f"{name}.toml").read_text(), f"{name}.toml"), verbs)
            for name, verbs in self.verbs.items()
        ]
        return Suite.of([stock_app("supervisor"), *own, *map(stock_app, self.stock)])

    @cached_property
    def policy(self) -> str:
        """The policy that the agent reads, in Markdown."""
        folder = files("palaestra.environments.families.desk.desks")
        return (folder / f"{self.name}.md").read_text().strip()

    def of_user(self, api: str) -> bool:
        """Return whether an API belongs to an app of the user's."""
        return api.partition(".")[0] in self.users

    def caller(self, scenario: Scenario, api: str) -> int:
        """Return who calls an API: the user those of their own apps, the agent all others."""
        return scenario.customer if self.for_user or self.of_user(api) else EMPLOYEE


def known_of(person: Person, **others: str) -> dict[str, str]:
    """Return what everybody knows of themselves, and more."""
    return {"name": person.name, "email": person.email, "birthday": person.birthday, **others}
