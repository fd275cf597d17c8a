"""Builds an evaluation plan: agents × models × environments × seeds, with all checks up front.

An impossible combination (an expert without an oracle, one player in a game of two) is left out of
the plan, which records the reason. An agent and model without any possible environment are an
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from palaestra.agents.players import PlayersAgent
from palaestra.agents.registry import agent_class, make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Capability, Spec
from palaestra.core.errors import InputError
from palaestra.environments.registry import names_actions, spec, tasks
from palaestra.evaluation.running.evaluation_plan import (
    CONTEXT,
    Cell,
    Factor,
    Plan,
    Shard,
    phase_of,
)
from palaestra.evaluation.running.suite import Entry, Limits, Suite
from palaestra.evaluation.statistics.costs import parse_prices
from palaestra.models.registry import check_model, is_local, is_remote, sees

DIRECT_TOKENS, THINKING_TOKENS = 8, 128  # per reply of a model on this machine, by default


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """The agents, models, environments and limits to evaluate."""

    entries: Sequence[Entry]
    agents: Sequence[str]
    models: Sequence[str]
    seeds: Sequence[int] = (1,)
    roles: Mapping[str, str] = field(default_factory=dict)
    temperature: float = 1.0
    reasoning_tokens: int | None = None
    context: int | None = None  # this and the next: of models in this process
    keep_thoughts: bool = False
    player_budget: Budget = Budget()  # of each of several players
    limits: Limits = field(default_factory=Limits)
    suite: Suite | None = None
    shard: Shard | None = None
    prices: Sequence[str] = ()
    factor: Factor | None = None


def plan(request: MatrixRequest) -> tuple[Plan, list[str]]:
    """Return the plan, and notes to show with it.

    Raises:
        InputError: a part of the request is invalid; the message names the first one.
    """
    if not request.temperature >= 0:
        raise InputError(f"The temperature {request.temperature} is invalid; give 0 or more.")
    for what in ("agents", "models", "seeds"):
        given = list(getattr(request, what))
        for one in given:
            if given.count(one) > 1:
                raise InputError(f"The {what[:-1]} {one} is given twice; give it once.")
    for agent in request.agents:
        make_agent(agent)
    for model in (*request.models, *request.roles.values()):
        check_model(model)
    specs = {
        entry.environment: _spec(entry.environment, request.suite) for entry in request.entries
    }
    _check_roles(request.roles, specs, request.agents)

    notes: list[str] = []
    counted = [_existing(entry, notes) for entry in request.entries]
    cells: list[Cell] = []
    skipped: dict[str, str] = {}
    single = len(counted) * len(request.agents) * len(request.models) * len(request.seeds) == 1
    for model, agent in product(request.models, request.agents):
        before = len(cells)
        for entry in counted:
            reason = _impossible(agent, model, entry.environment, specs[entry.environment])
            if reason is not None:
                skipped[f"{agent} with {model} on {entry.environment}"] = reason
                continue
            for seed in request.seeds:
                cells.append(_cell(request, entry, agent, model, seed, specs, single))
        if len(cells) == before:
            raise InputError(next(skipped[name] for name in skipped if f"with {model} on" in name))
    for name, reason in skipped.items():
        notes.append(f"left out: {name}: {reason}")
    prices = parse_prices(request.prices, [*request.models, *request.roles.values()])
    made = Plan(tuple(cells), request.suite, request.shard, prices, skipped, request.factor)
    return made, notes


def reply_tokens(agent: str) -> int:
    """Return how many tokens a reply to the agent of that name needs: a thought needs more."""
    return DIRECT_TOKENS if agent == "direct" else THINKING_TOKENS


def _cell(
    request: MatrixRequest,
    entry: Entry,
    agent: str,
    model: str,
    seed: int,
    specs: Mapping[str, Spec],
    single: bool,
) -> Cell:
    context = CONTEXT if request.context is None else request.context
    made = make_agent(agent)
    env_spec, environment = specs[entry.environment], entry.environment
    max_tokens = entry.max_tokens
    if max_tokens is None and not any(map(is_remote, (model, *request.roles.values()))):
        max_tokens = reply_tokens(agent_class(agent).name)
    if max_tokens is not None and max_tokens >= context and not is_remote(model):
        raise InputError(
            f"Replies of {max_tokens} tokens do not fit into the context of {context}; "
            "give fewer, or a longer context."
        )
    alone = f"eval/{entry.split}"
    return Cell(
        phase=alone if single else phase_of(entry.split, agent, model, environment, seed),
        environment=environment,
        agent=agent,
        model=model,
        roles={
            role: name
            for role, name in request.roles.items()
            if role in (*env_spec.players, *made.roles) or made.any_role
        },
        seed=seed,
        split=entry.split,
        tasks=entry.numbers,
        repeats=entry.repeats,
        turns=entry.turns or env_spec.typical_turns,
        max_tokens=max_tokens,
        temperature=request.temperature,
        seconds=request.limits.seconds,
        tokens=request.limits.tokens,
        weight=entry.weight,
        total_tokens=request.limits.total_tokens,
        tried=request.limits.tried,
        reasoning_tokens=request.reasoning_tokens,
        context=context,
        keep_thoughts=request.keep_thoughts,
        player_budget=request.player_budget,
    )


def _spec(environment: str, suite: Suite | None) -> Spec:
    try:
        return spec(environment)
    except InputError as error:
        if suite is None:
            raise
        raise InputError(f"The suite '{suite.name}' names '{environment}': {error}") from error


def _existing(entry: Entry, notes: list[str]) -> Entry:
    """Return the entry, limited to the tasks that its split has."""
    count = tasks(entry.environment).count(entry.split)
    if count is None or max(entry.numbers) < count:
        return entry
    where = f"'{entry.environment}' has {count} {entry.split} tasks"
    if count == 0:
        tasks(entry.environment).task(entry.split, 0)  # raises an error that names other splits
    if isinstance(entry.tasks, tuple):
        raise InputError(f"{where}, no number {max(entry.tasks)}; give 0 to {count - 1}.")
    notes.append(f"{where}, and each of them is taken once (requested: {entry.tasks})")
    return entry.model_copy(update={"tasks": count})


def _impossible(agent: str, model: str, environment: str, env_spec: Spec) -> str | None:
    """Return why this agent and model cannot act in the environment; None if they can."""
    if len(env_spec.players) > 1 and not agent_class(agent).several:
        return (
            f"'{environment}' has the players {', '.join(env_spec.players)}, and the agent "
            f"'{agent}' plays one; use --agent players."
        )
    made = make_agent(agent)
    named = made.agents if isinstance(made, PlayersAgent) else {}
    if unknown := [player for player in named if player not in env_spec.players]:
        return (
            f"'{environment}' has no player '{unknown[0]}'; its players are "
            f"{', '.join(env_spec.players)}."
        )
    if model.partition("?")[0] == "expert" and Capability.ORACLE not in env_spec.capabilities:
        return f"'{environment}' has no expert; choose another model."
    if model == "random" and not names_actions(environment):
        return f"'{environment}' does not name its actions; choose another model."
    if env_spec.images and not made.sees:
        return (
            f"'{environment}' shows images, and the agent '{agent}' does not pass them to its "
            "model; use the agent 'direct' or 'react'."
        )
    if env_spec.images and is_local(model) and sees(model) is False:
        return (
            f"The model '{model}' reads text only, and '{environment}' shows images; leave out the "
            "knob observation, or use a model that reads images."
        )
    return None


def _check_roles(
    roles: Mapping[str, str], specs: Mapping[str, Spec], agents: Sequence[str]
) -> None:
    known = {player: None for found in specs.values() for player in found.players}
    known |= {role: None for agent in agents for role in make_agent(agent).roles}
    if any(make_agent(agent).any_role for agent in agents):
        return
    for role in roles:
        if role not in known:
            where = "'" + "', '".join((*specs, *agents)) + "'"
            raise InputError(
                f"The role or player '{role}' does not exist; {where} has {', '.join(known)}."
            )
