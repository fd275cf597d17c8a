"""Which agents exist: name to class; packages add more by entry point `palaestra.agents`."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from palaestra.core.agent import Agent
from palaestra.core.errors import UnknownName

AGENTS: dict[str, str] = {
    "direct": "palaestra.agents.direct:DirectAgent",
    "players": "palaestra.agents.players:PlayersAgent",
    "react": "palaestra.agents.react:ReActAgent",
}


def agents() -> dict[str, str]:
    """Name to `module:Class`: ours, and those of installed packages."""
    return AGENTS | {point.name: point.value for point in entry_points(group="palaestra.agents")}


def agent_class(name: str) -> type[Agent]:
    """Raises UnknownName for a name that is neither registered nor `module:Class`."""
    target = name if ":" in name else agents().get(name)
    if target is None:
        raise UnknownName("agent", name, agents())
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise UnknownName("agent", name, agents()) from None
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise UnknownName("agent", name, agents())
    return found
