"""Templates of tasks on sites: the words of a goal, how to reach it, and what is right in the end.

A template is a function from a world and random numbers to a task, or to None where the world does
not have what it takes. What is right is stated as rows that must differ from the beginning, or as
an answer, or both; any other row that differs is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from palaestra.core.gestures.gesture_line import read_line
from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.real_sites.site_world import SiteWorld

Level = Literal["easy", "medium", "hard"]
Kind = Literal["find", "compare", "change", "configure", "moderate", "buy", "plan", "impossible"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True)
class Deed:
    """A part of a task: gestures from the first page of its first site, and what they leave."""

    gestures: tuple[str, ...]  # lines, as an agent writes them
    changes: tuple[Change, ...] = ()  # rows; see `inserted`, `updated`, `deleted`

    def __post_init__(self) -> None:
        """Raise InputError for a line that is no gesture, such as one with a name's apostrophe."""
        for line in self.gestures:
            read_line(line)


@dataclass(frozen=True, slots=True)
class WrongEnd:
    """An end that must not pass: gestures from the first page, and an answer."""

    gestures: tuple[str, ...] = ()
    answer: str | None = ""  # None: it gives up

    def __post_init__(self) -> None:
        """Raise InputError for a line that is no gesture: it would end nothing wrongly."""
        for line in self.gestures:
            read_line(line)


@dataclass(frozen=True, slots=True)
class SiteTask:
    """A task on sites."""

    goal: str
    deeds: tuple[Deed, ...] = ()
    answer: str | int | float | frozenset[str] | None = None
    """What must be said in the end: a text, a number, or a set of texts; None: it does not matter.
    """
    mentions: tuple[str, ...] = ()  # what new texts of free wording must mention
    page: str = ""  # the address that must be open in the end; empty: any
    pictures: frozenset[bytes] = frozenset()
    """Pictures of which the page must show one, as its first, in the end; empty: any."""

    hops: tuple[str, ...] = ()  # addresses that one has to see on the way, each a part of progress
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the person answers who is asked (`say`), by key words separated by spaces."""

    files: Mapping[str, bytes] = field(default_factory=dict)  # that may be uploaded, by name
    wrong: tuple[WrongEnd, ...] = ()  # planted, for tests
    possible: bool = True  # else the right end is to give up
    signed_in: bool = True  # at the start

    def ending(self) -> str:
        """Return the gesture that ends it rightly."""
        if not self.possible:
            return "give up"
        said = self.answer
        text = ", ".join(sorted(said)) if isinstance(said, frozenset) else said
        return f"answer {str('' if text is None else text)!r}"


Maker = Callable[[SiteWorld, random.Random], SiteTask | None]


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """A template, by name."""

    name: str
    group: str  # the first part of its environments' names: `shop` of `shop-easy`
    level: Level
    kind: Kind
    sites: tuple[str, ...]  # the applications of its worlds; a task begins at the first
    make: Maker
    tags: tuple[str, ...] = ()  # `world:NAME` is the templates of a group with that tag, too


TEMPLATES: dict[str, TaskTemplate] = {}
"""All templates by name, in the order of their definition; see `template_registry.py`."""


def template(
    group: str,
    level: Level,
    kind: Kind,
    sites: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Callable[[Maker], Maker]:
    """Return a decorator that registers a template under the name of its function.

    Args:
        group: of environments.
        level: how many steps it takes: below 8, below 16, or more.
        kind: what it asks for.
        sites: of its worlds, if not the one of the group's name.
        tags: words for what it takes; each is a set of tasks of the group.
    """

    def register(make: Maker) -> Maker:
        name = make.__name__.replace("_", "-")
        assert name not in TEMPLATES, name
        named = tuple(sites) or (group,)
        TEMPLATES[name] = TaskTemplate(name, group, level, kind, named, make, tuple(tags))
        return make

    return register


def click_on(words: str) -> str:
    """Return the click on what words name, whichever quotes and apostrophes are in them."""
    return f"click {words!r}"


def inserted(table: str, id: int = -1, **values: Any) -> Change:
    """Return a new row that is wanted; columns that are not given may hold anything.

    Args:
        table: `application.table`.
        id: below 0, to refer to it from other new rows.
        values: as SQLite holds them.
    """
    return Change(table, id, None, {"id": id, **values})


def updated(table: str, row: Row, **values: Any) -> Change:
    """Return a row that must have these values in the end, and its others as before."""
    return Change(table, row["id"], row, {**row, **values})


def deleted(table: str, row: Row) -> Change:
    """Return a row that must be gone."""
    return Change(table, row["id"], row, None)


def comparable(changes: Sequence[Change], wanted: Sequence[Change]) -> list[Change]:
    """Return changes without the columns that wanted new rows of the same table leave open."""
    stated: dict[str, set[str]] = {}
    for one in wanted:
        if one.kind == "insert":
            stated.setdefault(one.table, set()).update(one.values)
    return [
        replace(one, after={name: value for name, value in one.values.items() if name in known})
        if one.kind == "insert" and (known := stated.get(one.table))
        else one
        for one in changes
    ]
