"""The search syntax: words, and conditions such as `env:babyai reward>0.5`.

    door "red key" gob*        words, phrases and prefixes in observations, replies and actions
    run: env: task: agent: phase:   a part of the name (for a phase: it, or all that start with it)
    outcome:failure  outcome:truncated(turns)  solved:yes
    reward>0.5  turns<10  tokens>=100
    label:good  label:lost_at=4     a person's labels

All conditions must hold. Anything that is not a condition is a word.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from palaestra.store.queries import MEASURES, Filter

_PART = re.compile(
    r'(?P<name>[a-z]+):(?:"(?P<quoted>[^"]*)"|(?P<plain>(?:[^\s(]|\([^)]*\))+))'
    r"|(?P<measure>[a-z]+)(?P<relation><=|>=|<|>|=)(?P<bound>[-+.\deE]+|-?inf)(?!\S)"
    r'|"(?P<phrase>[^"]*)"'
    r"|(?P<word>\S+)"
)
_FIELDS = {"env": "environment", "environment": "environment", "task": "task", "agent": "agent"}
_FIELDS |= {"phase": "phase", "outcome": "outcome"}


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A parsed search."""

    filter: Filter
    words: tuple[str, ...] = ()
    run: str = ""  # a part of the run's name
    label: str = ""  # NAME or NAME=VALUE
    ignored: tuple[str, ...] = field(default=())  # invalid conditions, which the page names

    @property
    def empty(self) -> bool:
        return not (self.words or self.run or self.label or self.filter != Filter())


def parse(text: str) -> SearchQuery:
    """Parse the text of a search."""
    values: dict[str, str] = {}
    bounds: list[tuple[str, str, float]] = []
    words: list[str] = []
    ignored: list[str] = []
    solved: bool | None = None
    for part in _PART.finditer(text):
        whole, name = part[0], part["name"]
        value = part["quoted"] if part["quoted"] is not None else part["plain"]
        if name == "solved" and value in ("yes", "no"):
            solved = value == "yes"
        elif name in _FIELDS or name in ("run", "label"):
            values[_FIELDS.get(name, name)] = value
        elif part["measure"] in MEASURES:
            number = _number(part["bound"])
            if number is None:
                ignored.append(whole)
            else:
                bounds.append((part["measure"], part["relation"], number))
        elif name == "solved":
            ignored.append(whole)
        else:
            words.append(part["phrase"] if part["phrase"] is not None else whole)
    run, label = values.pop("run", ""), values.pop("label", "")
    filter = Filter(**values, solved=solved, bounds=tuple(bounds))  # type: ignore[arg-type]
    return SearchQuery(filter, tuple(word for word in words if word), run, label, tuple(ignored))


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return None if math.isnan(found) else found
