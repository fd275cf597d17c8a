"""Which environments exist, and how to get one: ids are `family/name`.

A family is one adapter class. Packages add families through the entry-point group
`palaestra.environments` (name = family, value = `module:Class`). A class that is
not registered anywhere is addressed as `module:Class` (or `module:Class/name`).
"""

from __future__ import annotations

import importlib
import shutil
from dataclasses import dataclass
from importlib.metadata import entry_points

from palaestra.core.environment import Environment
from palaestra.core.errors import (
    InputError,
    MissingPackage,
    MissingSystemPart,
    UnknownName,
)
from palaestra.core.task import TaskSet
from palaestra.environments import wrappers


@dataclass(frozen=True, slots=True)
class Family:
    """One adapter: many environments of one kind."""

    target: str  # "module:Class"
    extra: str  # what to install: palaestra[extra]
    source: str  # the package, and the paper to cite
    summary: str
    licence: str = ""  # of the package and of what it brings along
    install: str = ""  # the command, where the extra alone is not enough

    @property
    def command(self) -> str:
        """What installs the family's package."""
        return self.install or f"pip install 'palaestra[{self.extra}]'"


ALONE = "pip install --no-deps -r requirements/{}.txt (a file of palaestra's repository)"
"""For packages whose own requirements are wider or older than what they need."""

FAMILIES: dict[str, Family] = {
    "babyai": Family(
        "palaestra.environments.grid.babyai:BabyAI",
        "babyai",
        "minigrid (Chevalier-Boisvert et al. 2019, 2023)",
        "instructions in a grid world, told in words",
        "Apache-2.0",
    ),
    "minigrid": Family(
        "palaestra.environments.grid.babyai:MiniGrid",
        "babyai",
        "minigrid (Chevalier-Boisvert et al. 2023)",
        "the MiniGrid levels, told in words",
        "Apache-2.0",
    ),
    "minihack": Family(
        "palaestra.environments.grid.minihack:MiniHack",
        "minihack",
        "minihack (Samvelyan et al. 2021)",
        "small levels of NetHack, each for one skill",
        "Apache-2.0; NetHack General Public License",
        ALONE.format("nethack"),
    ),
    "nethack": Family(
        "palaestra.environments.grid.nethack:NetHack",
        "nethack",
        "nle (Küttler et al. 2020)",
        "NetHack, told in words",
        "NetHack General Public License",
        ALONE.format("nethack"),
    ),
    "probe": Family(
        "palaestra.environments.text.probe:Probe",
        "",
        "after bsuite (Osband et al. 2020)",
        "delayed credit, memory and exploration, each by itself",
        "Apache-2.0",
    ),
    "tau2": Family(
        "palaestra.environments.apps.tau2:Tau2",
        "tau2",
        "inspect-evals (τ²-bench: Yao et al. 2024, Barres et al. 2025)",
        "service desks: an agent, a user and a database that both act on",
        "MIT",
        ALONE.format("tau2"),
    ),
    "textworld": Family(
        "palaestra.environments.text.textworld:TextWorld",
        "textworld",
        "textworld (Côté et al. 2018)",
        "generated text adventures",
        "MIT",
    ),
}


def families() -> dict[str, Family]:
    """All families: ours, and those of installed packages."""
    found = dict(FAMILIES)
    for point in entry_points(group="palaestra.environments"):
        source = point.dist.name if point.dist else "plug-in"
        licence = str(point.dist.metadata.json.get("license_expression", "")) if point.dist else ""
        found[point.name] = Family(point.value, source, source, "plug-in", licence)
    return found


def environment_class(id: str) -> tuple[type[Environment], str]:
    """The adapter class and the name within its family; a query behind the id is left out.

    Raises:
        UnknownName: no such family, or the id has no name.
        MissingPackage: the family's package is not installed.
        MissingSystemPart: a program that the worlds need is not installed.
    """
    head, _, name = wrappers.split(id)[0].partition("/")
    if ":" in head:
        return _load(head, id, "pip install its package"), name
    known = families()
    if head not in known:
        raise UnknownName("environment family", head, known)
    family = known[head]
    return _load(family.target, id, family.command), name


def make(id: str) -> Environment:
    """A new environment of that id, its knobs set (see `wrappers.py`).

    Raises like `environment_class`, or if the name is unknown, or a knob cannot be set.
    """
    cls, name = environment_class(id)
    return wrappers.wrapped(cls(name), wrappers.split(id)[1])


def tasks(id: str) -> TaskSet:
    """The tasks of the environment of that id; raises like `make`."""
    cls, name = environment_class(id)
    cls.check_name(name)
    return cls.tasks(id)


def _load(target: str, id: str, command: str) -> type[Environment]:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise MissingPackage(
            f"The environment '{id}' needs the Python package '{error.name}', which is not "
            f"installed; install it with: {command}."
        ) from error
    except AttributeError:
        raise InputError(
            f"The module '{module}' has no class '{attribute}' (from '{id}')."
        ) from None
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise InputError(f"'{target}' is not a palaestra Environment class.")
    for program in found.programs:
        if shutil.which(program) is None:
            raise MissingSystemPart(
                f"The environment '{id}' needs the program '{program}', which is not on the PATH; "
                "install it with your system's package manager"
                f"{' (Debian: apt install default-jre-headless)' if program == 'java' else ''}."
            )
    return found
