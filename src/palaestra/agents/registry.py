"""The registry of agents: name to class; packages add more by entry point `palaestra.agents`.

Options follow an agent's name like a query string: `direct?history=4`. They are the keyword
parameters of its class.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from palaestra.core.agent import Agent
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.paths import import_named

AGENTS: dict[str, str] = {
    "adaptive": "palaestra.agents.search.adaptive:AdaptiveAgent",
    "beam": "palaestra.agents.search.beam:BeamAgent",
    "beliefs": "palaestra.agents.beliefs:BeliefsAgent",
    "best_first": "palaestra.agents.search.best_first:BestFirstAgent",
    "best_of_n": "palaestra.agents.search.best_of_n:BestOfN",
    "chain": "palaestra.agents.chain_of_agents:ChainAgent",
    "code": "palaestra.agents.code.code_agent:CodeAgent",
    "command": "palaestra.gateway.program_agents:CommandAgent",
    "constant": "palaestra.agents.memory.constant:ConstantAgent",
    "curator": "palaestra.agents.team_tools.curator:CuratorAgent",
    "deps": "palaestra.agents.deps:DepsAgent",
    "diff": "palaestra.agents.memory.diff_history:DiffAgent",
    "direct": "palaestra.agents.direct:DirectAgent",
    "examples": "palaestra.agents.memory.retrieved_examples:ExamplesAgent",
    "executor": "palaestra.agents.team_tools.executor:ExecutorAgent",
    "goal": "palaestra.agents.goal:GoalAgent",
    "labelled": "palaestra.agents.labelled:LabelledAgent",
    "lats": "palaestra.agents.search.lats:LatsAgent",
    "lookahead": "palaestra.agents.search.lookahead:LookaheadAgent",
    "lookup": "palaestra.agents.team_tools.lookup:LookupAgent",
    "ltl": "palaestra.agents.constraints.ltl:LTLAgent",
    "mcts": "palaestra.agents.search.mcts:MctsAgent",
    "meta": "palaestra.agents.meta_plan:MetaAgent",
    "modules": "palaestra.agents.modules:ModulesAgent",
    "occam": "palaestra.agents.occam:OccamAgent",
    "outside": "palaestra.gateway.program_agents:OutsideAgent",
    "personas": "palaestra.agents.personas:PersonasAgent",
    "places": "palaestra.agents.memory.places:PlacesAgent",
    "plan": "palaestra.agents.plan_and_execute:PlanAgent",
    "players": "palaestra.agents.players:PlayersAgent",
    "procedure": "palaestra.agents.procedure:ProcedureAgent",
    "profile": "palaestra.agents.memory.profile:ProfileAgent",
    "rci": "palaestra.agents.rci:RciAgent",
    "react": "palaestra.agents.react:ReActAgent",
    "recall": "palaestra.agents.memory.recall:RecallAgent",
    "recon": "palaestra.agents.memory.recon:ReconAgent",
    "recursive": "palaestra.agents.recursive:RecursiveAgent",
    "refine": "palaestra.agents.refine:RefineAgent",
    "reflexion": "palaestra.agents.reflexion:ReflexionAgent",
    "rules": "palaestra.agents.memory.causal_rules:RulesAgent",
    "segments": "palaestra.agents.constraints.segments:SegmentsAgent",
    "skills": "palaestra.agents.memory.skills:SkillsAgent",
    "sliding": "palaestra.agents.memory.sliding:SlidingAgent",
    "subtasks": "palaestra.agents.memory.subtasks:SubTasksAgent",
    "summary": "palaestra.agents.memory.summary:SummaryAgent",
    "toolbox": "palaestra.agents.memory.toolbox:ToolboxAgent",
    "tools": "palaestra.agents.function_calling:ToolsAgent",
    "verify": "palaestra.agents.verify:VerifyAgent",
    "vote": "palaestra.agents.vote:VoteAgent",
    "webpilot": "palaestra.agents.search.webpilot:WebPilotAgent",
}


@cache
def agents() -> dict[str, str]:
    """Return name to `module:Class`: the built-in agents and those of installed packages."""
    return AGENTS | {point.name: point.value for point in entry_points(group="palaestra.agents")}


def make_agent(name: str) -> Agent:
    """Create the agent of that name with the options that follow the name.

    Raises:
        UnknownName: there is no such agent or option.
        InputError: a value does not fit its option, or a required option is missing.
    """
    cls, query = agent_class(name), name.partition("?")[2]
    takes = inspect.signature(cls).parameters
    any_option = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    options: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option not in takes and not any_option:
            raise UnknownName(f"option of the agent '{cls.name}'", option, takes)
        hints = get_type_hints(cls.__init__, include_extras=True)
        finite = ConfigDict(allow_inf_nan=False)
        shape = TypeAdapter(hints.get(option, str), config=finite)
        try:
            options[option] = shape.validate_strings(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise InputError(f"'{part}' of the agent '{name}' is invalid: {why}.") from None
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [n for n, p in takes.items() if p.default is p.empty and p.kind not in several]
    missing = [option for option in needed if option not in options]
    if missing:
        given = f"{name}{'&' if query else '?'}{'&'.join(f'{option}=…' for option in missing)}"
        raise InputError(f"The agent '{cls.name}' needs {' and '.join(missing)}: write '{given}'.")
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The agent '{name}' cannot be created: {error}. Change its options."
        ) from None


def agent_class(name: str) -> type[Agent]:
    """Return the class of the agent of that name, without its options.

    Raises:
        UnknownName: the name is neither registered nor `module:Class`.
    """
    name = name.partition("?")[0]
    target = name if ":" in name else agents().get(name)
    if target is None:
        raise UnknownName("agent", name, agents())
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_named(module), attribute)
    except (ImportError, AttributeError):
        raise UnknownName("agent", name, agents()) from None
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise UnknownName("agent", name, agents())
    return found
