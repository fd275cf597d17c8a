"""The request for an evaluation, checked in the same way for Python and the command line.

Each check names the option as the caller writes it: `name` returns that spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

from palaestra.api.naming import named, several
from palaestra.api.policy import Policy
from palaestra.api.registering import Registration, check_registration
from palaestra.api.seating import EXAMPLE, Seating, seated, with_knob
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Environment
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import parse_split
from palaestra.environments.registry import factors, spec
from palaestra.environments.teams.own_protocol import TeamProtocol
from palaestra.evaluation.running.evaluation_plan import Factor, Plan
from palaestra.evaluation.running.matrix import MatrixRequest
from palaestra.evaluation.running.spending_budget import SpendingBudget
from palaestra.evaluation.running.suite import Entry, Limits, load

TASKS = 64  # default
INVALID = 3  # default of `player_invalid`
OF_SUITES = ("n", "split", "repeats", "turns", "max_tokens", "deadline", "tried")
"""Options that a suite sets itself, besides its environments."""
COUNTS = (
    "n", "repeats", "turns", "max_tokens", "reasoning_tokens", "context", "tried", "deadline",
    "player_turns", "player_tokens", "player_seconds",
    "player_turn_seconds", "player_invalid",
)  # fmt: skip

Environments = str | type[Environment] | Sequence[str | type[Environment]]
Naming = Callable[[str], str]


class Subject(TypedDict, total=False):
    """What is evaluated. Lists are combined: every agent with every model in every environment."""

    agent: str | type[Agent] | Sequence[str | type[Agent]]
    """A name of `palaestra list agents`, or a class; by default "direct"."""
    model: str | Policy | Sequence[str | Policy]
    """A name of `palaestra list models`, a folder, a remote model, or what `load` returned."""
    roles: Mapping[str, str]
    """Models for other roles or players, such as {"user": "openai:MODEL@URL"}."""
    players: Mapping[str, str]
    """Agent and model of players of a game, such as {"player0": "react@smollm2-135m"}, instead of
    `agent`; others are played by `direct` with `model`."""
    team: str | type[TeamProtocol]
    """A team that acts in the environment, instead of `agent`: a template, a file or a class."""
    teams: Mapping[str, str | type[TeamProtocol]]
    """Teams that act for players of a game, such as {"white": "majority"}, beside `players`."""
    player_turns: int
    """Actions of each player; one that needs more forfeits. So with the next two."""
    player_tokens: int
    """Tokens that each player may sample."""
    player_seconds: float
    """Seconds that each player may take to decide, in total."""
    player_turn_seconds: float
    """Seconds in which each player may decide on one action. Where the environment has an action
    that does nothing, a late one passes; else it forfeits."""
    player_invalid: int
    """Actions in a row that are not understood, with which a player forfeits; by default 3."""
    factor: str
    """What is varied alone, such as "operator": the environment's ids that differ from `env` in it
    are evaluated on the same tasks, and compared with it task by task."""
    suite: str | Path
    """A TOML file of environments and tasks, instead of `env` and the options below."""
    n: int
    """Number of tasks; by default 64."""
    split: str
    """Split of the tasks: "train", "validation" or "test" (the default)."""
    repeats: int
    """Episodes per task; by default 1."""
    turns: int
    """Actions per episode; by default the environment's own."""
    max_tokens: int
    """Tokens per reply; by default 8 for the agent "direct", else 128; a remote model's own."""
    reasoning_tokens: int
    """Reasoning tokens per reply, of `max_tokens`, for models that keep reasoning apart."""
    context: int
    """Tokens of the longest conversation with a model in this process; by default 2048, or the
    model's own if that is shorter."""
    keep_thoughts: bool
    """Whether a model in this process goes on with its earlier thoughts where its chat template
    would drop them and begin a new branch."""
    deadline: float
    """Seconds after which an episode is truncated, which is no success."""
    tried: int
    """Actions that a search may try in an episode, besides the actions that it takes."""
    seed: int | Sequence[int]
    """Seed of the sampling; by default 1."""
    temperature: float
    """Sampling temperature; by default 1; 0 is greedy."""
    prices: Mapping[str, tuple[float, float]]
    """By model: price of a million tokens read, and of a million sampled."""


class Evaluating(Subject, total=False):
    """All options of `evaluate`: what is evaluated, and with which resources."""

    run: str | Path
    """The run's folder, which must be new; by default `runs/eval-…`."""
    concurrency: int | Mapping[str, int]
    """Concurrent episodes, for all models or by model; by default 64 in most environments."""
    workers: int
    """Processes for the environments; 0: this one. By default 1, and 0 for classes."""
    on: str
    """A Ray cluster whose machines run the sessions: "ray", or "ray=ADDRESS"."""
    budget_tokens: int
    """Maximum tokens read and sampled, in total."""
    budget_money: float
    """Maximum cost, in total; needs `prices`."""
    budget_seconds: float
    """Maximum seconds of work, in total."""
    progress: bool
    """Whether to show progress on standard error; by default True."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The resources of an evaluation, which change no score."""

    concurrency: Mapping[str, int] = field(default_factory=dict)  # by model; "": all others
    workers: int = 1
    allowance: SpendingBudget = field(default_factory=SpendingBudget)
    on: str | None = None  # a Ray cluster whose machines run the sessions, as after `--on`
    registration: Registration | None = None  # where processes register; None: the default

    def check(self, plan: Plan, name: Naming) -> None:
        """Raise InputError for values that do not fit the plan."""
        check_registration(plan, self.registration, name)
        if self.workers < 0:
            raise InputError(f"{name('workers')} of {self.workers} is negative; give 0 or more.")
        known = {cell.model for cell in plan.cells}
        for model, count in self.concurrency.items():
            if count < 1:
                raise InputError(f"{name('concurrency')} of {count} is too small; give 1 or more.")
            if model and model not in known:
                raise InputError(
                    f"{name('concurrency')} {model}={count} names no model of this evaluation; "
                    f"choose from: {', '.join(sorted(known))}."
                )
        for kind in ("tokens", "money", "seconds"):
            value = getattr(self.allowance, kind)
            if value is not None and not value > 0:
                raise InputError(
                    f"{name(f'budget_{kind}')} of {value} leaves nothing to do; give more than 0."
                )
        if self.allowance.money is not None and not plan.prices:
            raise InputError(
                f"{name('budget_money')} needs prices; set {name('prices')} of a million tokens "
                "when the run is started."
            )


def given_options(options: Mapping[str, Any]) -> Evaluating:
    """Return the options without those that are None, which means the default.

    Raises:
        UnknownName: no option of that name.
    """
    for option in options:
        if option not in Evaluating.__annotations__:
            raise UnknownName("option of pa.evaluate", option, Evaluating.__annotations__)
    return cast(Evaluating, {name: one for name, one in options.items() if one is not None})


def asked(env: Environments | None, given: Subject, name: Naming = str) -> MatrixRequest:
    """Return the request to plan.

    Raises:
        InputError: an option is missing or invalid.
    """
    for option in COUNTS:
        _check_count(option, given.get(option), name)
    game = [option for option in ("players", "teams") if given.get(option)]
    acting = [option for option in ("agent", "team") if given.get(option)] + game[:1]
    if len(acting) > 1:
        raise InputError(
            f"{' and '.join(map(name, acting))} each say who acts; set only one of them."
        )
    own = {"": given["team"]} if given.get("team") else given.get("teams", {})
    teams = {player: named(team) for player, team in own.items()}
    if teams and "suite" in given:
        raise InputError(f"{name('team')} needs {name('env')}, and does not act in suites.")
    roles = given.get("roles", {})
    seating = seated(given.get("players", {}), teams, roles, name) if teams or game else None
    if (env is None) == ("suite" not in given):
        raise InputError(
            f"Set either {name('env')} (environments) or {name('suite')} (a suite), not both."
        )
    suite = load(given["suite"]) if "suite" in given else None
    factor: Factor | None = None
    if suite is not None:
        if "factor" in given:
            raise InputError(f"{name('factor')} needs {name('env')}, and varies no suite; drop it.")
        for option in OF_SUITES:
            if given.get(option) is not None:
                raise InputError(
                    f"{name(option)} is set by the suite '{suite.name}'; drop it, or write "
                    "your own suite."
                )
        entries = list(suite.entries)
    else:
        ids = [named(one) for one in several(env)]
        if "factor" in given:
            factor, ids = _varied(ids, given["factor"], name)
        entries = _entries([with_knob(id, seating.knob) for id in ids] if seating else ids, given)
    model = given.get("model") or (_only_own(seating, entries, name) if seating else None)
    if not model:
        raise InputError(f"{name('model')} is missing; choose one of `palaestra list models`.")
    prices = given.get("prices", {})
    return MatrixRequest(
        entries=entries,
        agents=[seating.agent]
        if seating
        else [named(agent) for agent in several(given.get("agent", "direct"))],
        models=[str(one) for one in several(model)],
        seeds=several(given.get("seed", 1)),
        roles=seating.roles if seating else roles,
        player_budget=Budget(
            given.get("player_turns"),
            given.get("player_tokens"),
            seconds=given.get("player_seconds"),
            invalid_actions=given.get("player_invalid", INVALID),
            turn_seconds=given.get("player_turn_seconds"),
        ),
        temperature=given.get("temperature", 1.0),
        reasoning_tokens=given.get("reasoning_tokens"),
        context=given.get("context"),
        keep_thoughts=given.get("keep_thoughts", False),
        limits=suite.limits
        if suite
        else Limits(seconds=given.get("deadline"), tried=given.get("tried")),
        suite=suite,
        prices=[f"{model}={read}/{sampled}" for model, (read, sampled) in prices.items()],
        factor=None if factor is None else Factor(factor.name, entries[0].environment),
    )


def _varied(ids: Sequence[str], factor: str, name: Naming) -> tuple[Factor, list[str]]:
    """Return a factor and the ids to compare, the base first.

    Raises:
        InputError: there are several environments, or the environment has no such factor.
    """
    if len(ids) != 1:
        raise InputError(
            f"{name('factor')} {factor} varies one environment, and {len(ids)} are given; give one."
        )
    known = factors(ids[0])
    if factor not in known:
        choices = f"choose from: {', '.join(known)}." if known else "drop it."
        raise InputError(f"'{ids[0]}' has no factor '{factor}'; {choices}")
    return Factor(factor, ids[0]), [ids[0], *known[factor]]


def effort(env: Environments | None, given: Evaluating) -> Effort:
    """Return the resources that a call of `evaluate` sets."""
    concurrency = given.get("concurrency", {})
    teams = [given.get("team"), *given.get("teams", {}).values()]
    classes = any(isinstance(one, type) for one in [*several(env), *teams])
    return Effort(
        concurrency if isinstance(concurrency, Mapping) else {"": concurrency},
        given.get("workers", 0 if classes else 1),
        SpendingBudget(
            given.get("budget_tokens"), given.get("budget_money"), given.get("budget_seconds")
        ),
        given.get("on"),
    )


def _only_own(seating: Seating, entries: Sequence[Entry], name: Naming) -> str | None:
    """Return one of the models of players that all have their own; None if none of them has.

    Raises:
        InputError: a player of an environment has no model.
    """
    for entry in entries if seating.roles else ():
        for player in spec(entry.environment).players:
            if player not in seating.roles:
                raise InputError(
                    f"Nobody plays for {player} in '{entry.environment}'; add {name('players')} "
                    f"{EXAMPLE}, or set {name('model')} for all others."
                )
    return next(iter(seating.roles.values()), None)


def _entries(environments: Sequence[str], given: Subject) -> list[Entry]:
    for id in environments:
        if environments.count(id) > 1:
            raise InputError(
                f"The environment {id} is given twice; give it once, and set repeats instead."
            )
    split = parse_split(given.get("split", "test"))
    return [
        Entry(
            environment=id,
            split=split,
            tasks=given.get("n", TASKS),
            repeats=given.get("repeats", 1),
            turns=given.get("turns"),
            max_tokens=given.get("max_tokens"),
        )
        for id in environments
    ]


def _check_count(option: str, value: object, name: Naming) -> None:
    """Raise InputError unless the option is unset or leaves something to do."""
    whole = option not in ("deadline", "player_seconds", "player_turn_seconds")
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"{name(option)} must be {kind}, not {value!r}.")
    if not (value >= 1 if whole else value > 0):
        least = "1 or more" if whole else "more than 0"
        raise InputError(f"{name(option)} of {value} leaves nothing to do; give {least}.")
