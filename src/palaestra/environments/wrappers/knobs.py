"""Knobs: variations of an environment, written as a query behind its id.

    babyai/GoToLocalS5N2?observation=diff&errors=0.1&turns=20

`context=NAME:LOW~HIGH` parameters, sampled for each task (`gravity:5~15,length:0.5`) and shown in
                        the first observation, or not shown (`gravity:5~15,hidden`)
`clock=real`            time passes as on a clock, where it is virtual (pages in a browser): videos
                        play, gestures take real seconds, and no episode repeats exactly
`observation=diff`      after the first, an observation lists what is new (+) and what is gone (-)
`observation=image`     a picture beside the text, if the environment has one (for vision models)
`observation=pixels`    a picture in place of the text; the first text says the goal
`observation=blank`     the same with pictures of one grey: the control of `pixels`
`observation=tree`      views of a page in place of its text, where elements are declared: `tree`,
                        `text`, `marks`, `picture`, or several, as `tree+picture`; with
                        `tree,merged,tables` in fewer lines (see `element_views.py`)
`targets=words`         the oracle names elements by words where these fit one only, and views show
                        no ids of those (see `word_targets.py`)
`gestures=click,type`   only gestures of these kinds, and `answer` and `give up`, are taken; the
                        instructions leave out the others
`dialect=NAME`          gestures are written as another system's actions: `browsergym`, `webarena`,
                        `pyautogui`, … (see `core/gestures/dialects.py`)
`reward=sparse`         1 at success and 0 elsewhere
`reward=progress`       the progress that an action made
`reward=intrinsic`      plus 1 / sqrt(visits of the state in the episode)
`actions=listed`        observations list the admissible actions
`actions=numbered`      the same with numbers, which are accepted as actions
`actions=tool`          actions are calls of a tool `act(action)`
`turns=N`               truncated after N actions
`budget=N`              the agent sees what is left of N actions, and fails when none is left
`calls=N`               the same with N tool calls, if the environment has tools
`coins=N`               the same with N coins; an action costs 1 to 3, by its first word and task
`profile=brief`         a user who wants short replies, or `quick`, `steady` (see
                        `preference_wrappers.py`), or `any`: another user for each task,
                        whose preferences are not shown with `any,hidden`
`messages=all`          players send each other messages; a TOML file declares channels and boards
                        (see `channels/channel_file.py`)
`team=NAME`             a team acts, whose members are the players (see `teams/team_file.py`); in a
                        game `team=PLAYER:NAME,…`
`library=FILE`          functions that agents kept are tools, besides the environment's own; they
                        run in a sandbox, with `FILE@KIND` in one of that kind (see
                        `library_functions.py`)
`latency=S`             seconds of sleep before each answer
`errors=P`              a share of actions fails with a transient error: nothing happens, try again
`stale=P`               a share of observations repeats the previous one
`partial=P`             a share of observations is cut in half

Random numbers are derived from the task's seed and the number of the action. So wrapped
environments stay reproducible and can be snapshotted, and an oracle knows which of its actions must
be repeated. Wrappers compose in the order of `KNOBS`, independent of the order in the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from palaestra.core.environment import Environment, Spec
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gestures.dialects import DIALECTS
from palaestra.environments.channels.talking import Messages
from palaestra.environments.teams.team_environment import InTeam
from palaestra.environments.wrappers.contextual import Context
from palaestra.environments.wrappers.element_views import COMPACTIONS, VIEWS, View, is_view
from palaestra.environments.wrappers.fault_injection import Errors, Latency, Partial, Stale
from palaestra.environments.wrappers.gesture_dialects import InDialect
from palaestra.environments.wrappers.gesture_selection import (
    KINDS,
    SelectedGestures,
    is_selection,
)
from palaestra.environments.wrappers.library_functions import LibraryFunctions
from palaestra.environments.wrappers.observation_wrappers import (
    Actions,
    Budget,
    Diff,
    Look,
    Reward,
    Turns,
)
from palaestra.environments.wrappers.preference_wrappers import Calls, Profile, SpendingBudget
from palaestra.environments.wrappers.real_clock import RealClock
from palaestra.environments.wrappers.word_targets import WordTargets
from palaestra.environments.wrappers.wrapper import Wrapper

OBSERVATIONS = (
    f"diff, image, pixels, blank, or views joined by +: {', '.join(VIEWS)} (of words also with "
    f"{' and '.join(f',{name}' for name in COMPACTIONS)} behind)"
)
KNOBS: dict[str, tuple[type[Wrapper], str]] = {
    "clock": (RealClock, "real"),
    "context": (Context, "NAME:LOW~HIGH, …"),
    "errors": (Errors, "a share from 0 to 1"),
    "stale": (Stale, "a share from 0 to 1"),
    "partial": (Partial, "a share from 0 to 1"),
    "targets": (WordTargets, "words"),
    "observation": (Diff, OBSERVATIONS),
    "gestures": (SelectedGestures, "kinds joined by commas: " + ", ".join(KINDS)),
    "dialect": (InDialect, ", ".join(DIALECTS)),
    "actions": (Actions, "listed, numbered, tool"),
    "team": (InTeam, "a template, or a TOML file"),
    "messages": (Messages, "all, or a TOML file"),
    "library": (LibraryFunctions, "a file of functions"),
    "reward": (Reward, "sparse, progress, intrinsic"),
    "profile": (Profile, "brief, quick, steady, any, hidden"),
    "latency": (Latency, "seconds"),
    "turns": (Turns, "a number of actions"),
    "budget": (Budget, "a number of actions"),
    "calls": (Calls, "a number of calls"),
    "coins": (SpendingBudget, "a number of coins"),
}
"""Knob -> (wrapper, allowed values); the first is the innermost.

`Look` implements `LOOKS`, and `View` the views of elements, which asks whether the wrapper next to
it is `WordTargets`.
"""

LOOKS = ("image", "pixels", "blank")


def split(id: str) -> tuple[str, dict[str, str]]:
    """Return the id without its query, and the query.

    Raises:
        UnknownName: there is no such knob.
        InputError: the knob does not accept the value, or a knob is given twice.
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
            raise InputError(f"'{name}={value}' in '{id}' is not valid; give {KNOBS[name][1]}.")
        found[name] = value
    seen = found.get("observation")
    if seen is not None and seen != "diff" and not found.keys().isdisjoint(("stale", "partial")):
        raise InputError(f"observation={seen} shows what stale and partial hide; leave one.")
    if "targets" in found and "dialect" in found:
        raise InputError(f"'{id}' sets 'targets' and 'dialect', which has its own; leave one.")
    return plain, found


def wrap(environment: Environment, knobs: Mapping[str, str]) -> Environment:
    """Return the environment with its knobs set.

    Raises:
        InputError: the environment lacks what a knob needs.
    """
    for wrapper, value in _chosen(knobs):
        environment = wrapper(environment, value)
    return environment


def adapt_spec(spec: Spec, knobs: Mapping[str, str]) -> Spec:
    """Return the spec of an environment with its knobs set; raises like `wrap`."""
    for wrapper, value in _chosen(knobs):
        spec = wrapper.adapt_spec(spec, value)
    return spec


def _chosen(knobs: Mapping[str, str]) -> list[tuple[type[Wrapper], str]]:
    """Return the wrappers, the innermost first, each with its value."""
    return [
        (_implementing(wrapper, knobs[name]), knobs[name])
        for name, (wrapper, _) in KNOBS.items()
        if name in knobs
    ]


def _implementing(wrapper: type[Wrapper], value: str) -> type[Wrapper]:
    if wrapper is not Diff or value == "diff":
        return wrapper
    return Look if value in LOOKS else View


def _fits(takes: str, value: str) -> bool:
    if takes == "NAME:LOW~HIGH, …" or takes.endswith(("a TOML file", "a file of functions")):
        return bool(value)  # the wrapper checks it
    if takes.startswith("a number of"):
        return re.fullmatch(r"[0-9]{1,9}", value) is not None and int(value) > 0
    if takes in ("seconds", "a share from 0 to 1"):
        number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?|\.[0-9]+", value)
        return number is not None and (takes == "seconds" or float(value) <= 1)
    if takes.startswith("kinds joined by commas"):
        return is_selection(value)
    if takes == OBSERVATIONS:
        return value in ("diff", *LOOKS) or is_view(value)
    known = takes.split(", ")
    return all(part in known for part in value.split(",")) if "hidden" in known else value in known
