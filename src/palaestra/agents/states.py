r"""A procedure: a finite state machine in a TOML file, which says what may be done when.

    title = "…"                      # of the procedure
    start = "NAME"                   # of its first state
    read = ['to (?P<goal>\w+)']     # named parts of observations are kept as values …
    [states.NAME]
    told = "Go to $goal."            # … and stand for themselves in what the model is told
    actions = ["north", "take .+"]   # regular expressions: all that may be done; none: anything
    do = "open door"                 # instead of the two: what is done, without asking a model
    next = [{ when = "regular expression over the observation", to = "NAME" },
            { ask = "A question that the model answers with yes or no?", to = "NAME" }]

The first edge that holds is followed, then the first one from there, until none holds.
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
    """Where to go on, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    when: re.Pattern[str] | None = None
    ask: str = ""
    to: str


class State(BaseModel):
    """What is to be done in a state, and what may be."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    told: str = ""
    actions: tuple[re.Pattern[str], ...] = ()
    do: str = ""
    next: tuple[Edge, ...] = ()

    def allows(self, action: str) -> bool:
        """Whether the action is one that may be done here."""
        return not self.actions or any(allowed.fullmatch(action) for allowed in self.actions)


class Procedure(BaseModel):
    """The states, and where to begin."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    start: str
    states: dict[str, State] = Field(min_length=1)
    read: tuple[re.Pattern[str], ...] = ()

    def values(self, seen: str) -> dict[str, str]:
        """The named parts that an observation has."""
        found = [match for pattern in self.read if (match := pattern.search(seen))]
        return {name: part for match in found for name, part in match.groupdict("").items()}


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with `$name` replaced by the value of that name, where there is one."""
    return Template(text).safe_substitute(values)


def load_procedure(path: Path) -> Procedure:
    """The procedure in a file.

    Raises:
        InputError: it cannot be read, is no TOML, has a wrong key, value or regular expression,
            or names a state that it does not have.
    """
    try:
        procedure = Procedure.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"The procedure '{path}' cannot be read: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"The procedure '{path}': '{place}': {first['msg']}.") from None
    named = {procedure.start: "start"}
    for name, state in procedure.states.items():
        named |= {edge.to: f"states.{name}.next" for edge in state.next}
        if any((edge.when is None) == (not edge.ask) for edge in state.next):
            raise InputError(
                f"The procedure '{path}': an edge of '{name}' needs 'when' or 'ask', and not both."
            )
        if state.do and (state.actions or state.told):
            raise InputError(
                f"The procedure '{path}': '{name}' does '{state.do}' without asking, so nobody "
                "reads its 'told' and 'actions'; remove them."
            )
    for name, where in named.items():
        if name not in procedure.states:
            known = ", ".join(procedure.states)
            raise InputError(
                f"The procedure '{path}': {where} leads to '{name}', and the states are: {known}."
            )
    return procedure
