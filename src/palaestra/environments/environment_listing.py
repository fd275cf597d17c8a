"""The list of all environments, with the facts that are known without making them."""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.core.environment import declared
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.family_table import Family
from palaestra.environments.registry import environment_class, families


@dataclass(frozen=True, slots=True)
class Entry:
    """One environment, or a family that is not installed."""

    id: str
    family: str
    version: str  # empty if not installed
    installed: bool
    missing: str  # what is missing and how to install it; empty if installed
    players: tuple[str, ...]
    capabilities: tuple[str, ...]
    tasks: dict[str, int | None]  # tasks per split; None: unlimited
    extra: str
    source: str
    licence: str
    summary: str


def entries(only: str | None = None) -> list[Entry]:
    """List all environments, or those of one family, sorted by family.

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
        names = cls.names()
    except InputError as error:
        return [Entry(name, name, "", False, str(error), (), (), {}, *about)]
    found = []
    for name_in_family in names or [""]:
        id = f"{name}/{name_in_family}" if name_in_family else name
        spec = cls.spec_of(name_in_family) if name_in_family else declared(cls)
        tasks = cls.tasks(id)
        found.append(
            Entry(
                id,
                name,
                spec.version,
                True,
                "",
                spec.players,
                tuple(sorted(spec.capabilities)),
                {str(split): tasks.count(split) for split in Split},
                *about,
            )
        )
    return found
