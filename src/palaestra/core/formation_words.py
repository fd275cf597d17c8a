"""The words of groups that form at run time: what hosts and workers are asked, and may reply.

Like `team_words`, they are part of prompts, and models that read them need the very words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from palaestra.core.team_words import PASS

FIND = "find"  # followed by skills: members that have them join
MAKE = "make"  # followed by skills: somebody new joins, who has them
ASK = "ask"  # followed by a name: that member says something
ASSIGN = "assign"  # followed by a name and a task: the group waits for its result
START = "start"  # the same, and the group goes on meanwhile
WAIT = "wait"  # for the results of all tasks
CONCLUDE = "conclude"  # followed by what the group is for, which may also stand alone

FORMS = {
    FIND: f"{FIND}: SKILLS",
    MAKE: f"{MAKE}: SKILLS",
    ASK: f"{ASK} NAME: WORDS",
    ASSIGN: f"{ASSIGN} NAME: TASK",
    START: f"{START} NAME: TASK",
    WAIT: WAIT,
    CONCLUDE: f"{CONCLUDE}: RESULT",
}
"""How each reply of a host is written; `start` does not wait for the result, unlike `assign`."""

HOST = "Reply with one of: "  # the beginning of what a host is asked for
RESULT = "Reply with the result"  # the beginning of what a worker is asked for
FREE = "Free in your group:"  # the line before a host's list of workers
REGISTER = "register"  # followed by skills: the reply of somebody new who is there
PLACE = f"A place in a team is free. Reply with {REGISTER}: SKILLS, or: {PASS}."
"""What is asked for every free place before a search."""


class Move(NamedTuple):
    """A reply that changes a group."""

    do: str  # a key of FORMS
    text: str  # what stands after the colon
    name: str = ""  # of a member


def host_asked(moves: Sequence[str], result: str) -> str:
    """Return what a host is asked for, by the keys of FORMS that it may use."""
    forms = [f"{CONCLUDE}: {result}" if move == CONCLUDE else FORMS[move] for move in moves]
    return f"{HOST}{', or: '.join(forms)}."


def worker_asked(moves: Sequence[str]) -> str:
    """Return what a worker is asked for, by the keys of FORMS with which it may form a group."""
    return f"{', or: '.join([RESULT, *(FORMS[move] for move in moves)])}."


def registered_skills(text: str) -> str | None:
    """Return the skills with which a reply takes a free place; None: it takes none."""
    found = re.fullmatch(rf"{REGISTER}\s*:\s*(.+)", text.strip(), re.IGNORECASE | re.DOTALL)
    return None if found is None else found[1].strip()


def parse_move(text: str) -> Move:
    """Return the move that a reply is; any text that is no other one concludes."""
    text = text.strip()
    if re.fullmatch(rf"{WAIT}\W*", text, re.IGNORECASE):
        return Move(WAIT, "")
    pattern = rf"({FIND}|{MAKE}|{CONCLUDE})\s*:\s*(.+)"
    found = re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL)
    if found is not None:
        return Move(found[1].lower(), found[2].strip())
    pattern = rf"({ASK}|{ASSIGN}|{START})\s+([^:\n]+?)\s*:\s*(.+)"
    found = re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL)
    if found is not None:
        return Move(found[1].lower(), found[3].strip(), found[2])
    return Move(CONCLUDE, text)


def unmatched(text: str) -> str:
    """Return the line that nobody else can be found for a task or for skills."""
    return f"Nobody else is registered for: {text}"


def read_unmatched(line: str) -> str | None:
    """Return what a line by `unmatched` is about; None for any other line."""
    before, between, text = line.partition("Nobody else is registered for: ")
    return text if between and not before else None
