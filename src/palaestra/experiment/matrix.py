"""From what was asked to a plan: agents × models × worlds × seeds, every mistake found first.

A combination that cannot be (an expert where the world has none, one player in a world of
two) is left out of the plan, which says why; an agent and model with nothing left to do are a
mistake of whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from palaestra.agents.registry import agent_class, make_agent
from palaestra.core.environment import Capability
from palaestra.core.errors import InputError
from palaestra.environments.registry import make, tasks
from palaestra.evaluation.costs import parse_prices
from palaestra.evaluation.plan import Cell, Plan, Shard, phase_of
from palaestra.evaluation.suite import Entry, Limits, Suite
from palaestra.models.registry import check_model

CONTEXT = 2048  # tokens of a conversation with a resident model
DIRECT_TOKENS, THINKING_TOKENS = 8, 128  # tokens per reply, where the user gives none


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants evaluated."""

    entries: Sequence[Entry]
    agents: Sequence[str]
    models: Sequence[str]
    seeds: Sequence[int] = (1,)
    roles: Mapping[str, str] = field(default_factory=dict)
    temperature: float = 1.0
    limits: Limits = field(default_factory=Limits)
    suite: Suite | None = None
    shard: Shard | None = None
    prices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _World:
    """What a plan must know of an environment."""

    capabilities: frozenset[Capability]
    names_actions: bool
    players: tuple[str, ...]
    typical_turns: int


def plan(asked: Asked) -> tuple[Plan, list[str]]:
    """The plan, and what should be said of it.

    Raises:
        InputError: something that was asked for cannot be; the first such thing is named.
    """
    if not asked.temperature >= 0:
        raise InputError(f"The temperature {asked.temperature} cannot be; give 0 or more.")
    for what in ("agents", "models", "seeds"):
        given = list(getattr(asked, what))
        for one in given:
            if given.count(one) > 1:
                raise InputError(f"The {what[:-1]} {one} is given twice; give it once.")
    for agent in asked.agents:
        make_agent(agent)
    for model in (*asked.models, *asked.roles.values()):
        check_model(model)
    worlds = {entry.environment: _look(entry.environment, asked.suite) for entry in asked.entries}
    _check_roles(asked.roles, worlds, asked.agents)

    notes: list[str] = []
    counted = [_existing(entry, notes) for entry in asked.entries]
    cells: list[Cell] = []
    skipped: dict[str, str] = {}
    single = len(counted) * len(asked.agents) * len(asked.models) * len(asked.seeds) == 1
    for model, agent in product(asked.models, asked.agents):
        before = len(cells)
        for entry in counted:
            reason = _impossible(agent, model, entry.environment, worlds[entry.environment])
            if reason is not None:
                skipped[f"{agent} with {model} on {entry.environment}"] = reason
                continue
            for seed in asked.seeds:
                cells.append(_cell(asked, entry, agent, model, seed, worlds, single))
        if len(cells) == before:
            raise InputError(next(skipped[name] for name in skipped if f"with {model} on" in name))
    for name, reason in skipped.items():
        notes.append(f"left out: {name}: {reason}")
    prices = parse_prices(asked.prices, [*asked.models, *asked.roles.values()])
    return Plan(tuple(cells), asked.suite, asked.shard, prices, skipped), notes


def _cell(
    asked: Asked,
    entry: Entry,
    agent: str,
    model: str,
    seed: int,
    worlds: Mapping[str, _World],
    single: bool,
) -> Cell:
    world, environment = worlds[entry.environment], entry.environment
    thinking = agent_class(agent).name != "direct"
    max_tokens = entry.max_tokens or (THINKING_TOKENS if thinking else DIRECT_TOKENS)
    if max_tokens >= CONTEXT:
        raise InputError(
            f"Replies of {max_tokens} tokens leave no room; the context is {CONTEXT}: give less."
        )
    alone = f"eval/{entry.split}"
    return Cell(
        phase=alone if single else phase_of(entry.split, agent, model, environment, seed),
        environment=environment,
        agent=agent,
        model=model,
        roles={
            role: name
            for role, name in asked.roles.items()
            if role in (*world.players, *agent_class(agent).roles)
        },
        seed=seed,
        split=entry.split,
        tasks=entry.numbers,
        repeats=entry.repeats,
        turns=entry.turns or world.typical_turns,
        max_tokens=max_tokens,
        temperature=asked.temperature,
        seconds=asked.limits.seconds,
        tokens=asked.limits.tokens,
        weight=entry.weight,
        total_tokens=asked.limits.total_tokens,
        tried=asked.limits.tried,
    )


def _look(environment: str, suite: Suite | None) -> _World:
    try:
        world = make(environment)
    except InputError as error:
        if suite is None:
            raise
        raise InputError(f"The suite '{suite.name}' names '{environment}': {error}") from error
    try:
        return _World(
            world.capabilities, world.names_actions, tuple(world.players), world.typical_turns
        )
    finally:
        world.close()


def _existing(entry: Entry, notes: list[str]) -> Entry:
    """The entry with the tasks that its split has."""
    count = tasks(entry.environment).count(entry.split)
    if count is None or max(entry.numbers) < count:
        return entry
    where = f"'{entry.environment}' has {count} {entry.split} tasks"
    if count == 0:
        tasks(entry.environment).task(entry.split, 0)  # raises, and says which splits have some
    if isinstance(entry.tasks, tuple):
        raise InputError(f"{where}: there is no number {max(entry.tasks)} (they start at 0).")
    notes.append(f"{where}, and each of them is taken once (asked for: {entry.tasks})")
    return entry.model_copy(update={"tasks": count})


def _impossible(agent: str, model: str, environment: str, world: _World) -> str | None:
    """Why this agent and model cannot act there; None: they can."""
    if len(world.players) > 1 and not agent_class(agent).several:
        return (
            f"'{environment}' has the players {', '.join(world.players)}, and the agent "
            f"'{agent}' plays one; use --agent players."
        )
    if model.partition("?")[0] == "expert" and Capability.ORACLE not in world.capabilities:
        return f"'{environment}' has no expert; choose another model."
    if model == "random" and not world.names_actions:
        return f"'{environment}' does not name its actions; choose another model."
    return None


def _check_roles(
    roles: Mapping[str, str], worlds: Mapping[str, _World], agents: Sequence[str]
) -> None:
    known = {player: None for world in worlds.values() for player in world.players}
    known |= {role: None for agent in agents for role in agent_class(agent).roles}
    for role in roles:
        if role not in known:
            where = "'" + "', '".join((*worlds, *agents)) + "'"
            raise InputError(f"The role '{role}' plays nobody: {where} has {', '.join(known)}.")
