"""A listing of the agents: a summary, the papers and the model roles of each.

The summary is the first line of the class docstring. The papers are those that the module
docstring cites with a year. `python -m palaestra.agents.agent_listing PAGE` updates the table in a
Markdown page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from palaestra.agents.registry import agent_class, agents

START, END = "<!-- agents -->\n", "<!-- end -->\n"
_WORD = r"[A-Z][\w'-]*\w"
_NAME = rf"{_WORD}(?: {_WORD})*"
_PAPER = re.compile(
    rf"{_NAME}(?:(?:,? and |, ){_NAME})*(?:\s+et\s+al\.)?,?\s+\(?(?:19|20)\d\d(?!\d)\)?"
)


class About(NamedTuple):
    """One entry of the listing."""

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]


def entries() -> list[About]:
    """Return all agents, sorted by name."""
    found = []
    for name in sorted(agents()):
        cls = agent_class(name)
        summary = (cls.__doc__ or "").strip().partition("\n")[0]
        papers = papers_in(sys.modules[cls.__module__].__doc__ or "")
        found.append(About(name, summary, "; ".join(papers) or "palaestra", cls.roles))
    return found


def papers_in(text: str) -> list[str]:
    """Return the papers that a text cites: authors or a system's name, and a year."""
    found = (" ".join(match.split()) for match in _PAPER.findall(text))
    return list(dict.fromkeys(re.sub(r",? \(?(\d{4})\)?$", r" \1", paper) for paper in found))


def table() -> str:
    """Return the agents as a Markdown table."""
    rows = [
        f"| `{name}` | {summary.rstrip('.')} | {source} | {', '.join(roles)} |"
        for name, summary, source, roles in entries()
    ]
    head = [
        "| agent | what it does | source | roles besides `agent` |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def updated(page: str) -> str:
    """Return the page with an up-to-date table between its two markers."""
    before, _, rest = page.partition(START)
    return before + START + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text()))
