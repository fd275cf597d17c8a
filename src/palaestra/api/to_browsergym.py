"""Environments of palaestra for agents that expect BrowserGym's, such as AgentLab's."""

from __future__ import annotations

import re

from palaestra.api.naming import named
from palaestra.core.environment import Capability, Environment
from palaestra.core.errors import InputError, MissingPackage
from palaestra.core.task import parse_split
from palaestra.environments import registry


def to_browsergym(id: str | type[Environment], *, split: str = "test") -> str:
    """Register an environment of elements with gymnasium as one of BrowserGym's; return its name.

    The name is that of a task of BrowserGym: `browsergym/palaestra.miniwob.click-button`. An agent
    of BrowserGym or AgentLab runs on it unmodified: `gymnasium.make(name)`, or
    `EnvArgs(task_name=name.removeprefix("browsergym/"))`. Registration holds in this process.

    Args:
        id: of an environment with elements, or its class.
        split: whose task number s `reset(seed=s)` begins.

    Raises:
        MissingPackage: gymnasium is not installed.
        InputError: there is no such environment, it has no elements, or has several players.
    """
    id = named(id)
    spec, part = registry.spec(id), parse_split(split)
    if Capability.ELEMENTS not in spec.capabilities or len(spec.players) > 1:
        raise InputError(
            f"'{id}' is no page for one agent; choose an environment with elements, such as "
            "miniwob/click-button or web/easy."
        )
    try:
        from gymnasium import register
        from gymnasium import registry as registered
    except ImportError as error:
        raise MissingPackage(
            "BrowserGym's interface needs the package 'gymnasium', which is not installed; "
            "install it with: pip install 'palaestra[gymnasium]'."
        ) from error
    plain = re.sub(r"[^A-Za-z0-9_:-]+", ".", id).strip(".")
    name = f"browsergym/palaestra.{plain}" + ("" if part == "test" else f".{part}")
    given = {"environment": id, "split": part}
    if name not in registered:
        target = "palaestra.api.browsergym_environment:BrowserGymEnvironment"
        register(name, target, kwargs=given, disable_env_checker=True)
    elif registered[name].kwargs != given:
        raise InputError(f"The name '{name}' already stands for another environment than '{id}'.")
    return name
