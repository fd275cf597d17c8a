"""Commands of text games: what somebody said as one of them, and which lead on to a solution.

A solution that a package names ("gold path") begins at the start of a game. From anywhere else
there are two honest guesses, which a world tries in its own simulator before it names one: go on
where the solution was left, or walk back to the start and follow it, leaving out what is not
understood any more.
"""

from __future__ import annotations

from collections.abc import Sequence

EDGES = "> \"'`*,."  # a prompt, quotation and emphasis around a command
LONGEST = 200  # characters of a command


def spoken(text: str) -> str:
    """The command in what a model said: its first line, in plain lower case."""
    line = next((line for line in text.lower().splitlines() if line.strip(EDGES)), "")
    line = "".join(c if c.isascii() and c.isprintable() else " " for c in line)
    return " ".join(line.strip(EDGES).split())[:LONGEST].strip(EDGES)


def plain(text: str) -> str:
    """A game's words without trailing blanks and empty lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def ways(gold: Sequence[str], past: Sequence[str], back: Sequence[str]) -> list[list[str]]:
    """Commands to try after those of `past`, the likelier first; `back` leads to the start."""
    followed = 0
    for command in past:
        followed += followed < len(gold) and command == gold[followed]
    on, again = list(gold[followed:]), [*back, *gold]
    return [on] if on == again else [on, again]
