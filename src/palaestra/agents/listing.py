"""What is said of each agent: a line, its papers, and the roles in which it asks models.

The line is the first of the class's docstring; the papers are those that the docstring of its
module names with a year. `python -m palaestra.agents.listing PAGE` writes the table of a page anew.
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
    """What a listing says of an agent."""

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]


def entries() -> list[About]:
    """All agents, by name."""
    found = []
    for name in sorted(agents()):
        cls = agent_class(name)
        summary = (cls.__doc__ or "").strip().partition("\n")[0]
        papers = papers_in(sys.modules[cls.__module__].__doc__ or "")
        found.append(About(name, summary, "; ".join(papers) or "palaestra", cls.roles))
    return found


def papers_in(text: str) -> list[str]:
    """The papers that a text names: authors, or a system's name, and a year."""
    found = (" ".join(match.split()) for match in _PAPER.findall(text))
    return list(dict.fromkeys(re.sub(r",? \(?(\d{4})\)?$", r" \1", paper) for paper in found))


def table() -> str:
    """The agents as a Markdown table."""
    rows = [
        f"| `{name}` | {summary.rstrip('.')} | {source} | {', '.join(roles)} |"
        for name, summary, source, roles in entries()
    ]
    head = [
        "| agent | what it does | source | roles besides `agent` |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def rewritten(page: str) -> str:
    """The page with the table of now between its two marks."""
    before, _, rest = page.partition(START)
    return before + START + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text()))
