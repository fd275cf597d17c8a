"""Verbs: what an app can do beyond the endpoints of its entities, as short functions.

    @verb
    def invite(call: Caller, event_id: int, email: str) -> Row:
        '''Invite somebody to an event.'''
        call.own("calendar.event", event_id)
        ...

The first argument is the caller; the others, with their types, become the schema, and the first
line of the docstring the documentation. A section "Args" of the docstring describes arguments,
"Returns" has lines such as `invitation_id: integer` with the JSON types of what it answers, and
"Raises" lines such as `404: nobody has that address` with statuses of its own. A verb runs in a
transaction: if it raises ApiError, nothing has changed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.environments.families.apps.compiler.api import Api, Caller
from palaestra.environments.shared.typed_tools import arguments_for, described_tool


@dataclass(frozen=True, slots=True)
class Verb:
    """A hand-written API, before it belongs to an app."""

    function: Callable[..., Any]
    changes: bool = True

    def api(self, app: str) -> Api:
        """Return it as an API of an app."""
        name = self.function.__name__
        tool = described_tool(name, self.function)

        def run(caller: Caller, given: Mapping[str, Any]) -> Any:
            return self.function(caller, **arguments_for(self.function, ToolCall(name, given)))

        answers = {key: {"type": kind} for key, kind in _section(self.function, "Returns").items()}
        returns = {"type": "object", "properties": answers} if answers else {}
        errors = {int(key): words for key, words in _section(self.function, "Raises").items()}
        return Api(app, name, tool.description, tool.parameters, self.changes, run, returns, errors)


def _section(function: Callable[..., Any], title: str) -> dict[str, str]:
    """Return what the lines `key: words` of a section of the docstring say."""
    text = (inspect.getdoc(function) or "").partition(f"{title}:\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^ +(\w+): (.+)$", text, re.M))


def verb(function: Callable[..., Any]) -> Verb:
    """Make a verb of a function that may change rows."""
    return Verb(function)


def reading(function: Callable[..., Any]) -> Verb:
    """Make a verb of a function that changes nothing."""
    return Verb(function, changes=False)
