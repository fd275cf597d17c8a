"""Commands of text games: parsing a reply into one, and candidate plans towards a solution.

A package's solution ("gold path") begins at the start of a game. From any other state there are
two candidates, which an environment tries in its own simulator before it returns one: continue
where the agent left the solution, or go back to the start and follow it, skipping commands that
are no longer understood.
"""

from __future__ import annotations

from collections.abc import Sequence

EDGES = "> \"'`*,."  # a prompt, quotation and emphasis around a command
LONGEST = 200  # most characters of a command


def parse_command(text: str) -> str:
    """Return the command in a model's reply: its first line, in lower-case ASCII."""
    line = next((line for line in text.lower().splitlines() if line.strip(EDGES)), "")
    line = "".join(c if c.isascii() and c.isprintable() else " " for c in line)
    return " ".join(line.strip(EDGES).split())[:LONGEST].strip(EDGES)


def plain(text: str) -> str:
    """Return a game's text without trailing blanks and empty lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def candidate_plans(
    gold: Sequence[str], past: Sequence[str], back: Sequence[str]
) -> list[list[str]]:
    """Return plans to try after the `past` commands, likelier first; `back` leads to the start."""
    followed = 0
    for command in past:
        followed += followed < len(gold) and command == gold[followed]
    rest, restart = list(gold[followed:]), [*back, *gold]
    return [rest] if rest == restart else [rest, restart]
