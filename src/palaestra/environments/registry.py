"""The registry of environments: it makes an environment from an id, `family/name`.

A family is one adapter class with a version, which an id may require (`family/name@1`).
Packages add families through the entry-point group `palaestra.environments` (name =
family, value = `module:Class`). A class that is not registered is addressed as
`module:Class` (or `module:Class/name`).
"""

from __future__ import annotations

import re
import shutil
from functools import cache
from importlib.metadata import entry_points

from palaestra.core import rare_capabilities
from palaestra.core.environment import Environment, Spec, declared
from palaestra.core.errors import (
    InputError,
    MissingPackage,
    MissingSystemPart,
    UnknownName,
)
from palaestra.core.goals import GoalConditioned
from palaestra.core.paths import import_named, is_missing
from palaestra.core.task import TaskSet
from palaestra.environments.family_table import FAMILIES, Family
from palaestra.environments.wrappers import knobs

VERSION = re.compile(r"@(\d+)$")


@cache
def families() -> dict[str, Family]:
    """Return all families: built-in ones and those of installed packages (cached: reads files)."""
    found = dict(FAMILIES)
    for point in entry_points(group="palaestra.environments"):
        source = point.dist.name if point.dist else "plug-in"
        licence = str(point.dist.metadata.json.get("license_expression", "")) if point.dist else ""
        found[point.name] = Family(point.value, source, source, "plug-in", licence)
    return found


def environment_class(id: str) -> tuple[type[Environment], str]:
    """Return the adapter class and the name within its family, without version and query.

    Raises:
        UnknownName: there is no such family.
        InputError: the id requires another version than the installed one.
        MissingPackage: the family's package is not installed.
        MissingSystemPart: a program that the environments need is not installed.
    """
    plain = knobs.split(id)[0]
    asked = VERSION.search(plain)
    head, _, name = plain.removesuffix(asked[0] if asked else "").partition("/")
    if ":" in head:
        cls = _load(head, id)
    elif head in families():
        family = families()[head]
        cls = _load(family.target, id, family.command)
    else:
        raise UnknownName("environment family", head, families())
    here = declared(cls).version
    if asked and asked[1] != here:
        raise InputError(
            f"'{id}' requires version {asked[1]}, but version {here} is installed, and their "
            f"results do not compare; write @{here}, or install the palaestra with version "
            f"{asked[1]}."
        )
    return cls, name


def without_version(id: str) -> str:
    """Return an id that requires no version: `family/name` of `family/name@1`."""
    plain = knobs.split(id)[0]
    return VERSION.sub("", plain) + id.removeprefix(plain)


def make(id: str) -> Environment:
    """Make a new environment of that id with its knobs set (see `wrappers/knobs.py`).

    Raises like `environment_class`, or if the name is unknown, or a knob cannot be set.
    """
    cls, name = environment_class(id)
    return knobs.wrap(cls(name), knobs.split(id)[1])


def spec(id: str) -> Spec:
    """Return the spec of the environment of that id without making it; raises like `make`."""
    cls, name = environment_class(id)
    return knobs.adapt_spec(cls.spec_of(name), knobs.split(id)[1])


def names_actions(id: str) -> bool:
    """Return whether random actions can be sampled there, as far as is known without making it."""
    cls, name = environment_class(id)
    return rare_capabilities.names_actions(cls, cls.spec_of(name))


def states_goals(id: str) -> bool:
    """Return whether the tasks of that environment state goals (see `core.goals`)."""
    return issubclass(environment_class(id)[0], GoalConditioned)


def factors(id: str) -> dict[str, list[str]]:
    """Return the ids that differ from one in a single factor, by factor; see `Varied.factors`.

    Raises:
        UnknownName, InputError, MissingPackage, MissingSystemPart: see `environment_class`.
    """
    cls, name = environment_class(id)
    if not issubclass(cls, rare_capabilities.Varied):
        return {}
    plain = knobs.split(id)[0]
    version = found[0] if (found := VERSION.search(plain)) else ""
    head = plain.removesuffix(version)
    head = head.removesuffix(name) if name else f"{head}/"
    return {
        factor: [f"{head}{other}{version}{id.removeprefix(plain)}" for other in names]
        for factor, names in cls.factors(name).items()
    }


def tasks(id: str) -> TaskSet:
    """Return the tasks of the environment of that id; raises like `make`."""
    cls, name = environment_class(id)
    cls.spec_of(name)  # raises for an unknown name
    return cls.tasks(id)


def _load(target: str, id: str, command: str | None = None) -> type[Environment]:
    """Import the class of a target `module:Class`; `command` installs the family's package."""
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_named(module), attribute)
    except ImportError as error:
        if command is None and is_missing(module, error):
            raise InputError(
                f"The module '{module}' of the environment '{id}' was not found; change to the "
                "folder of its file, or add that folder to PYTHONPATH."
            ) from error
        raise MissingPackage(
            f"The environment '{id}' needs the Python package '{error.name}', which is not "
            f"installed; install it with: {command or 'pip install its package'}."
        ) from error
    except AttributeError:
        raise InputError(
            f"The module '{module}' has no class '{attribute}' (from '{id}'); check the id."
        ) from None
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise InputError(
            f"'{target}' is not a subclass of palaestra's Environment; name one in the id."
        )
    for program in declared(found).needs:
        if shutil.which(program) is None:
            raise MissingSystemPart(
                f"The environment '{id}' needs the program '{program}', which is not on the PATH; "
                "install it with your system's package manager"
                f"{' (Debian: apt install default-jre-headless)' if program == 'java' else ''}."
            )
    return found
