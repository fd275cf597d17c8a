"""How the reader plays in groups that form at run time: whom it finds, and what it assigns.

A task of several numbered lines has one word of the right action for each ("1. …"), and a line of
several parts ("2. art: … & …") one letter of its word for each. A host finds somebody for each
part, assigns it to the best match of its group, waits for all results and joins them; parts for
which nobody is found it does itself. Where it may, it makes somebody instead of a search, whose
skill is the first word of the part. A worker whose part has parts does so in a group of its own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from palaestra.core.bm25 import scores
from palaestra.core.formation_words import (
    ASSIGN,
    CONCLUDE,
    FIND,
    HOST,
    MAKE,
    RESULT,
    START,
    WAIT,
    parse_move,
    read_unmatched,
)
from palaestra.core.message import Message
from palaestra.core.routing_words import read_part
from palaestra.core.team_words import DID, instructed, listed_worker
from palaestra.models.scripted.routing_reader import numbered


def is_asked(asked: str) -> bool:
    """Return whether a line asks a host or a worker of a group."""
    return asked.startswith((HOST, RESULT))


async def reply(messages: Sequence[Message], own: Callable[[str], Awaitable[str]]) -> str:
    """Return the reply of a host or a worker; `own` returns its own answer to a part."""
    asked = messages[-1].text.splitlines()[-1]
    hosts, work, parts = asked.startswith(HOST), _work(messages), _parts(messages)
    if not hosts and (len(parts) < 2 or FIND not in asked):
        return await own(work)
    known = _results(messages)
    if FIND in asked:
        given = {*_given(messages), *known}
        left = [part for part in parts if part not in given]
        if left:
            makes = f"{MAKE}: " in asked
            return _placed(left[0], messages[-1].text, alone=len(parts) == 1, makes=makes)
    if WAIT in asked:
        return WAIT
    answers = [known.get(part) or await own(part) for part in parts]
    return f"{CONCLUDE}: {('' if work else ' ').join(answers)}"


def answer_to(part: str, action: str) -> str:
    """Return the word or the letter of an action that belongs to a part; all of it if none does."""
    found, words = re.match(r"(\d+)(?:\.(\d+))?", part), action.split()
    if found is None or not 0 < int(found[1]) <= len(words):
        return action
    word = words[int(found[1]) - 1]
    return word if found[2] is None else word[int(found[2]) - 1]


def action_in(text: str) -> str | None:
    """Return the action in a sampled reply of a host or a worker; None: it is none."""
    move = parse_move(text)
    return move.text if move.do == CONCLUDE else None


def _work(messages: Sequence[Message]) -> str:
    """Return the task of a worker or of the host of a group in a group; empty: the outermost."""
    found = [work for line in messages[-1].text.splitlines() if (work := instructed(line))]
    return found[-1] if found else ""


def _parts(messages: Sequence[Message]) -> list[str]:
    """Return the parts of a worker's line, or the lines of the environment's task."""
    work = _work(messages)
    if not work:
        read = _lines(messages)
        return numbered("\n".join(read)) or read[:1]
    number, _, rest = work.partition(". ")
    pieces = rest.partition(": ")[2].split(" & ") if " & " in rest else []
    return [f"{number}.{at} {piece}" for at, piece in enumerate(pieces, 1)] or [work]


def _results(messages: Sequence[Message]) -> dict[str, str]:
    """Return the results of parts so far; empty for those that nobody else does."""
    found: dict[str, str] = {}
    for line in _lines(messages):
        missing, done = read_unmatched(line), read_part(line.partition(": ")[2])
        if missing is not None:
            found[missing] = ""
        if done is not None and done[1] is not None:
            found[done[0]] = done[1]
    return found


def _placed(part: str, text: str, *, alone: bool, makes: bool) -> str:
    """Return the reply that assigns a part to the best match of the group, finds or makes one."""
    free = dict(one for line in text.splitlines() if (one := listed_worker(line)) is not None)
    rated = dict(zip(free, scores(part, [" ".join(one) for one in free.items()]), strict=True))
    best = max(rated, key=lambda name: rated[name], default="")
    if not best or rated[best] <= 0:
        return f"{MAKE}: {_skill_of(part)}" if makes else f"{FIND}: {part}"
    return f"{ASSIGN if alone else START} {best}: {part}"


def _skill_of(part: str) -> str:
    """Return the first word of a part after its number."""
    found = re.match(r"[\d.]*\s*([\w-]+)", part)
    return part if found is None else found[1]


def _given(messages: Sequence[Message]) -> list[str]:
    """Return the parts that it has assigned in this turn."""
    own = [one.text for one in messages[_turn_at(messages) :] if one.role == "assistant"]
    moves = [parse_move(text) for text in own]
    return [move.text for move in moves if move.do in (ASSIGN, START)]


def _lines(messages: Sequence[Message]) -> list[str]:
    """Return the lines that it has read in this turn, from what the environment shows on."""
    now = messages[_turn_at(messages) :]
    read = [line for one in now if one.role == "user" for line in one.text.splitlines()]
    begins = [at for at, line in enumerate(read) if line.startswith(DID)]
    return read[begins[-1] + 1 if begins else 1 :]  # without its briefing


def _turn_at(messages: Sequence[Message]) -> int:
    """Return the index of the message in which the turn begins."""
    found = [
        at
        for at, one in enumerate(messages)
        if one.role == "user" and any(line.startswith(DID) for line in one.text.splitlines())
    ]
    return found[-1] if found else 0
