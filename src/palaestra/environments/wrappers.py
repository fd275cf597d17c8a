"""Knobs that make one environment many, written behind its id like a query.

    babyai/GoToLocalS5N2?observation=diff&errors=0.1&turns=20

`context=NAME:LOW~HIGH` numbers of the world, drawn for each task (`gravity:5~15,length:0.5`), and
                        told in the first observation, or not told (`gravity:5~15,hidden`)
`observation=diff`      after the first, an observation says what is new (+) and what is gone (-)
`observation=image`     a picture beside the words, where the world has one (models that see)
`reward=sparse`         1 at success and 0 elsewhere
`reward=progress`       the progress that an action made
`reward=intrinsic`      plus one over the root of how often the state was seen in the episode
`actions=listed`        observations list what can be done
`actions=numbered`      the same with numbers, which are understood
`actions=tool`          an action is said by calling a tool `act(action)`
`turns=N`               truncated after N actions
`budget=N`              the agent sees what is left of N actions, and has failed when it is nothing
`calls=N`               the same with N calls of tools, where the world has any
`purse=N`               the same with N coins; an action costs 1 to 3, by its first word and task
`profile=brief`         a user who wants short replies, or `quick`, `steady` (see `users.py`), or
                        `any`: another user for each task, who keeps it to himself if `any,hidden`
`latency=S`             seconds of sleep before each answer
`errors=P`              a share of actions meets a passing error: nothing happens, try again
`stale=P`               a share of observations is the one before, once more
`partial=P`             a share of observations is cut in half

Chance is drawn from the task's seed and the number of the action, so wrapped worlds stay
reproducible, can be snapshotted, and an oracle knows which of its actions will have to be repeated.
Wrappers compose in the order of `KNOBS`, whatever the order of writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from palaestra.core.environment import Environment
from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.context import Context
from palaestra.environments.faults import Errors, Latency, Partial, Stale
from palaestra.environments.users import Calls, Profile, Purse
from palaestra.environments.views import Actions, Budget, Reward, Turns, seen
from palaestra.environments.wrapper import Wrapper

KNOBS: dict[str, tuple[Callable[[Environment, str], Wrapper], str]] = {
    "context": (Context, "NAME:LOW~HIGH, …"),
    "errors": (Errors, "a share from 0 to 1"),
    "stale": (Stale, "a share from 0 to 1"),
    "partial": (Partial, "a share from 0 to 1"),
    "observation": (seen, "diff, image"),
    "actions": (Actions, "listed, numbered, tool"),
    "reward": (Reward, "sparse, progress, intrinsic"),
    "profile": (Profile, "brief, quick, steady, any, hidden"),
    "latency": (Latency, "seconds"),
    "turns": (Turns, "a number of actions"),
    "budget": (Budget, "a number of actions"),
    "calls": (Calls, "a number of calls"),
    "purse": (Purse, "a number of coins"),
}
"""Name to wrapper and what may be chosen; the first is the innermost."""


def split(id: str) -> tuple[str, dict[str, str]]:
    """The id without its query, and the query.

    Raises:
        UnknownName: there is no such knob.
        InputError: a value is not what the knob takes, or a knob is given twice.
    """
    plain, asked, query = id.partition("?")
    found: dict[str, str] = {}
    for part in query.split("&") if asked else ():
        name, _, value = part.partition("=")
        if name not in KNOBS:
            raise UnknownName("knob of environments", name, KNOBS)
        if name in found:
            raise InputError(f"'{id}' sets '{name}' twice; set it once.")
        if not _fits(KNOBS[name][1], value):
            raise InputError(f"'{name}={value}' in '{id}' cannot be; give {KNOBS[name][1]}.")
        found[name] = value
    return plain, found


def wrapped(world: Environment, knobs: Mapping[str, str]) -> Environment:
    """The world with its knobs set.

    Raises:
        InputError: the world lacks what a knob needs.
    """
    for name, (wrapper, _) in KNOBS.items():
        if name in knobs:
            world = wrapper(world, knobs[name])
    return world


def _fits(takes: str, value: str) -> bool:
    if takes == "NAME:LOW~HIGH, …":
        return bool(value)  # the world knows the names
    if takes.startswith("a number of"):
        return re.fullmatch(r"[0-9]{1,9}", value) is not None and int(value) > 0
    if takes in ("seconds", "a share from 0 to 1"):
        number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?|\.[0-9]+", value)
        return number is not None and (takes == "seconds" or float(value) <= 1)
    known = takes.split(", ")
    return all(part in known for part in value.split(",")) if "hidden" in known else value in known
