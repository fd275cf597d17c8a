"""What environments there are, with all that can be said of each without making it."""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.registry import Family, environment_class, families


@dataclass(frozen=True, slots=True)
class Entry:
    """One environment, or a family that is not installed."""

    id: str
    family: str
    version: str  # empty where not installed
    installed: bool
    missing: str  # what it lacks and how to get it; empty where installed
    players: tuple[str, ...]
    capabilities: tuple[str, ...]
    tasks: dict[str, int | None]  # of each split; None: as many as one asks for
    extra: str
    source: str
    licence: str
    summary: str


def entries(only: str | None = None) -> list[Entry]:
    """All environments in the order of their ids; of one family, if a name is given.

    Raises:
        UnknownName: there is no such family.
    """
    known = families()
    if only is not None and only not in known:
        environment_class(only)  # raises
    found = []
    for name in sorted(known if only is None else [only]):
        found += _of(name, known[name])
    return found


def _of(name: str, family: Family) -> list[Entry]:
    about = (family.extra, family.source, family.licence, family.summary)
    try:
        cls, _ = environment_class(name)
        worlds = cls.names()
    except InputError as error:
        return [Entry(name, name, "", False, str(error), (), (), {}, *about)]
    found = []
    for world in worlds or [""]:
        id = f"{name}/{world}" if world else name
        tasks = cls.tasks(id)
        found.append(
            Entry(
                id,
                name,
                cls.version,
                True,
                "",
                cls.players_of(world),
                tuple(sorted(cls.capabilities_of(world))),
                {str(split): tasks.count(split) for split in Split},
                *about,
            )
        )
    return found
