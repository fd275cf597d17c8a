"""palaestra: build, run, train and evaluate LLM agents in interactive environments.

    import palaestra as pa

gives the names below. Each is imported when it is first used: this module imports nothing.
docs/python.md shows every one of them at work.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from palaestra.api.command import command
    from palaestra.api.credit_rule import credit_rule
    from palaestra.api.evaluating import aevaluate, evaluate
    from palaestra.api.policy import Policy, load
    from palaestra.api.results import Results
    from palaestra.api.reward_term import reward_term
    from palaestra.api.runs import Run, atrain, train
    from palaestra.api.to_browsergym import to_browsergym
    from palaestra.api.to_pettingzoo import to_pettingzoo
    from palaestra.core.agent import Agent
    from palaestra.core.environment import Action, Environment, Observation, Transition
    from palaestra.core.episode import Episode
    from palaestra.core.errors import PalaestraError
    from palaestra.core.message import Message, assistant, system, user
    from palaestra.core.session import Session
    from palaestra.core.task import Task, TaskSet
    from palaestra.environments.authoring import ToolWorld, tool
    from palaestra.environments.teams.own_protocol import TeamProtocol
    from palaestra.learning.credit.rule import Credit
    from palaestra.learning.data.trajectory import Trajectory, Turn

_NAMES = {
    "palaestra.api.command": ("command",),
    "palaestra.api.credit_rule": ("credit_rule",),
    "palaestra.api.evaluating": ("aevaluate", "evaluate"),
    "palaestra.api.policy": ("Policy", "load"),
    "palaestra.api.results": ("Results",),
    "palaestra.api.reward_term": ("reward_term",),
    "palaestra.api.runs": ("Run", "atrain", "train"),
    "palaestra.api.to_browsergym": ("to_browsergym",),
    "palaestra.api.to_pettingzoo": ("to_pettingzoo",),
    "palaestra.core.agent": ("Agent",),
    "palaestra.core.environment": ("Action", "Environment", "Observation", "Transition"),
    "palaestra.core.episode": ("Episode",),
    "palaestra.core.errors": ("PalaestraError",),
    "palaestra.core.message": ("Message", "assistant", "system", "user"),
    "palaestra.core.session": ("Session",),
    "palaestra.core.task": ("Task", "TaskSet"),
    "palaestra.environments.authoring": ("ToolWorld", "tool"),
    "palaestra.environments.teams.own_protocol": ("TeamProtocol",),
    "palaestra.learning.credit.rule": ("Credit",),
    "palaestra.learning.data.trajectory": ("Trajectory", "Turn"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Action",
    "Agent",
    "Credit",
    "Environment",
    "Episode",
    "Message",
    "Observation",
    "PalaestraError",
    "Policy",
    "Results",
    "Run",
    "Session",
    "Task",
    "TaskSet",
    "TeamProtocol",
    "ToolWorld",
    "Trajectory",
    "Transition",
    "Turn",
    "aevaluate",
    "assistant",
    "atrain",
    "command",
    "credit_rule",
    "evaluate",
    "load",
    "reward_term",
    "system",
    "to_browsergym",
    "to_pettingzoo",
    "tool",
    "train",
    "user",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'palaestra' has no attribute '{name}'")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
