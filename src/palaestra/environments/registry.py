"""Which environments exist, and how to get one: ids are `family/name`.

A family is one adapter class with a version, which an id may ask for (`family/name@1`).
Packages add families through the entry-point group `palaestra.environments` (name =
family, value = `module:Class`). A class that is not registered anywhere is addressed as
`module:Class` (or `module:Class/name`).
"""

from __future__ import annotations

import importlib
import re
import shutil
from dataclasses import dataclass
from functools import cache
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

VERSION = re.compile(r"@(\d+)$")


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
    "agentdojo": Family(
        "palaestra.environments.apps.agentdojo_env:AgentDojo",
        "agentdojo",
        "agentdojo (Debenedetti et al. 2024)",
        "an assistant with tools, among them poisoned data: utility and security",
        "MIT",
        ALONE.format("agentdojo"),
    ),
    "arcade": Family(
        "palaestra.environments.arcade.atari:Atari",
        "arcade",
        "ale-py (Bellemare et al. 2013, Machado et al. 2018)",
        "104 Atari games, told from the machine's memory",
        "GPL-2.0 (ale-py); the games belong to their makers",
    ),
    "babyai": Family(
        "palaestra.environments.grid.babyai:BabyAI",
        "babyai",
        "minigrid (Chevalier-Boisvert et al. 2019, 2023)",
        "instructions in a grid world, told in words",
        "Apache-2.0",
    ),
    "bfcl": Family(
        "palaestra.environments.apps.bfcl:Bfcl",
        "bfcl",
        "bfcl-eval (Patil et al. 2025)",
        "users who ask for one thing after another, and stateful tools that do them",
        "Apache-2.0",
        ALONE.format("bfcl"),
    ),
    "crafter": Family(
        "palaestra.environments.grid.crafter:Crafter",
        "crafter",
        "crafter (Hafner 2021)",
        "an open world of gathering, building and survival",
        "MIT",
    ),
    "datascience": Family(
        "palaestra.environments.code.datascience:DataScience",
        "datascience",
        "scikit-learn (Pedregosa et al. 2011); after MLE agents (Yang et al. 2025)",
        "models to be trained on bundled data in a notebook, scored on hidden rows",
        "BSD-3-Clause",
    ),
    "discoveryworld": Family(
        "palaestra.environments.text.discoveryworld:DiscoveryWorld",
        "discoveryworld",
        "discoveryworld (Jansen et al. 2024)",
        "whole cycles of scientific discovery in a small world",
        "Apache-2.0",
        ALONE.format("discoveryworld"),
    ),
    "gymnasium": Family(
        "palaestra.environments.generic.gymnasium_env:Gymnasium",
        "gymnasium",
        "gymnasium (Towers et al. 2024)",
        "any id of Gymnasium, told in words and numbers",
        "MIT",
    ),
    "mcp": Family(
        "palaestra.environments.apps.mcp_env:McpEnvironment",
        "mcp",
        "mcp (Anthropic 2024)",
        "any server of the Model Context Protocol, by a description of its tasks",
        "MIT",
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
    "openenv": Family(
        "palaestra.environments.generic.openenv_env:OpenEnv",
        "openenv",
        "openenv (Meta and Hugging Face 2025)",
        "any OpenEnv server, by a description of its actions and its ends",
        "BSD-3-Clause",
    ),
    "openspiel": Family(
        "palaestra.environments.games.openspiel:OpenSpiel",
        "openspiel",
        "open_spiel (Lanctot et al. 2019)",
        "board, card and dice games, against others or oneself",
        "Apache-2.0",
    ),
    "pettingzoo": Family(
        "palaestra.environments.games.pettingzoo_env:PettingZoo",
        "pettingzoo",
        "pettingzoo (Terry et al. 2021)",
        "games of several players by turns",
        "MIT",
    ),
    "probe": Family(
        "palaestra.environments.text.probe:Probe",
        "",
        "after bsuite (Osband et al. 2020)",
        "delayed credit, memory and exploration, each by itself",
        "Apache-2.0",
    ),
    "reasoning": Family(
        "palaestra.environments.reasoning.reasoning_gym:ReasoningGym",
        "reasoning",
        "reasoning-gym (Stojanovski et al. 2025)",
        "104 kinds of generated puzzles with verifiers, in one go or with feedback",
        "Apache-2.0",
    ),
    "repository": Family(
        "palaestra.environments.code.repository:Repository",
        "",
        "parts of cycler, mdurl, mpmath, packaging and dateutil, with bugs put in",
        "bugs in small real packages, judged by hidden tests",
        "BSD-3-Clause, MIT, Apache-2.0",
    ),
    "scienceworld": Family(
        "palaestra.environments.text.scienceworld:ScienceWorld",
        "scienceworld",
        "scienceworld (Wang et al. 2022)",
        "experiments of a science class, in words",
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
    "terminal": Family(
        "palaestra.environments.code.terminal:Terminal",
        "",
        "after NL2Bash (Lin et al. 2018) and Terminal-Bench (2025)",
        "shell tasks in a folder of one's own, judged by its files",
        "Apache-2.0",
    ),
    "textarena": Family(
        "palaestra.environments.games.textarena_env:TextArena",
        "textarena",
        "textarena (Guertler et al. 2025)",
        "word and board games for language models",
        "MIT",
    ),
    "textworld": Family(
        "palaestra.environments.text.textworld:TextWorld",
        "textworld",
        "textworld (Côté et al. 2018)",
        "generated text adventures",
        "MIT",
    ),
    "textworld-express": Family(
        "palaestra.environments.text.textworld_express:TextWorldExpress",
        "textworld-express",
        "textworld-express (Jansen and Côté 2022)",
        "eight fast text games",
        "Apache-2.0",
    ),
    "verifiers": Family(
        "palaestra.environments.generic.verifiers_env:Verifiers",
        "verifiers",
        "verifiers (Brown et al. 2025)",
        "any environment of verifiers: its tasks, engine, tools and rewards",
        "MIT",
    ),
}


@cache
def families() -> dict[str, Family]:
    """All families: ours, and those of installed packages (looked for once: that reads files)."""
    found = dict(FAMILIES)
    for point in entry_points(group="palaestra.environments"):
        source = point.dist.name if point.dist else "plug-in"
        licence = str(point.dist.metadata.json.get("license_expression", "")) if point.dist else ""
        found[point.name] = Family(point.value, source, source, "plug-in", licence)
    return found


def environment_class(id: str) -> tuple[type[Environment], str]:
    """The adapter class and the name within its family, without version and query.

    Raises:
        UnknownName: no such family, or the id has no name.
        InputError: the id asks for another version than there is.
        MissingPackage: the family's package is not installed.
        MissingSystemPart: a program that the worlds need is not installed.
    """
    plain = wrappers.split(id)[0]
    asked = VERSION.search(plain)
    head, _, name = plain.removesuffix(asked[0] if asked else "").partition("/")
    if ":" in head:
        cls = _load(head, id, "pip install its package")
    elif head in families():
        family = families()[head]
        cls = _load(family.target, id, family.command)
    else:
        raise UnknownName("environment family", head, families())
    if asked and asked[1] != cls.version:
        raise InputError(
            f"'{id}' asks for version {asked[1]}, and version {cls.version} is here: their results "
            f"do not compare. Write @{cls.version}, or install the palaestra that has the other."
        )
    return cls, name


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
