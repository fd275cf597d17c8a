r"""A procedure: a finite state machine in a TOML file, which states the allowed actions.

    title = "…"                      # of the procedure
    start = "NAME"                   # of its first state
    read = ['to (?P<goal>\w+)']     # named groups in observations become values …
    [states.NAME]
    prompt = "Go to $goal."          # … that are substituted in the prompt text
    actions = ["north", "take .+"]   # regular expressions of allowed actions; none: any action
    do = "open door"                 # instead of both: an action taken without asking a model
    next = [{ when = "regular expression over the observation", to = "NAME" },
            { ask = "A question that the model answers with yes or no?", to = "NAME" }]

The first true edge is followed, then the first one of the next state, until none is true.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Template

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from palaestra.core.errors import InputError


class Edge(BaseModel):
    """A transition to another state, and its condition."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    when: re.Pattern[str] | None = None
    ask: str = ""
    to: str


class State(BaseModel):
    """The prompt text of a state, and the actions that it takes or allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    prompt: str = ""
    actions: tuple[re.Pattern[str], ...] = ()
    do: str = ""
    next: tuple[Edge, ...] = ()

    def allows(self, action: str) -> bool:
        """Return whether the action is allowed here."""
        return not self.actions or any(allowed.fullmatch(action) for allowed in self.actions)


class Procedure(BaseModel):
    """The states, and the first one."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    start: str
    states: dict[str, State] = Field(min_length=1)
    read: tuple[re.Pattern[str], ...] = ()

    def values(self, seen: str) -> dict[str, str]:
        """Return the named groups found in an observation."""
        found = [match for pattern in self.read if (match := pattern.search(seen))]
        return {name: part for match in found for name, part in match.groupdict("").items()}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace each `$name` that has a value."""
    return Template(text).safe_substitute(values)


def load_procedure(path: Path) -> Procedure:
    """Load the procedure in a file.

    Raises:
        InputError: the file cannot be read or is not TOML; a key, value or regular expression is
            wrong; or it names an unknown state.
    """
    try:
        procedure = Procedure.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"The procedure '{path}' cannot be read: {error}. Give a TOML file."
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"The procedure '{path}': '{place}': {first['msg']}.") from None
    named = {procedure.start: "start"}
    for name, state in procedure.states.items():
        named |= {edge.to: f"states.{name}.next" for edge in state.next}
        if any((edge.when is None) == (not edge.ask) for edge in state.next):
            raise InputError(
                f"The procedure '{path}': an edge of '{name}' needs either 'when' or 'ask'."
            )
        if state.do and (state.actions or state.prompt):
            raise InputError(
                f"The procedure '{path}': '{name}' does '{state.do}' without asking a model, so "
                "its 'prompt' and 'actions' have no effect; remove them."
            )
    for name, where in named.items():
        if name not in procedure.states:
            known = ", ".join(procedure.states)
            raise InputError(
                f"The procedure '{path}': {where} leads to the unknown state '{name}'; use one of: "
                f"{known}."
            )
    return procedure
