"""The lines of an observation that matter: of a page shown as text, or of any other text.

A page is shown one element a line, `[12] button 'Buy'`, indented below what it is in (see
`core/element_text.py`). Lines that name no element are text. What stands above the first element,
such as the goal, is the caption.

Sources: Yang et al. 2024, "AgentOccam" (pivotal nodes); Lù et al. 2024, "WebLINX" (elements ranked
by the task, and the best of them shown).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, islice

from palaestra.agents.memory.retrieval import Retrieval

ELEMENT = re.compile(r"^\s*\[([^\]]+)\] (?=\w+(?: ['\"]|, |$)|\|)")  # a line of an element: its id
TARGET = re.compile(r"\[([^\]]+)\]|'([^']+)'")  # in an action: an id, or words
LONGEST = 120  # characters of a line in the history


def compact(text: str) -> str:
    """Return an observation without blank lines; a line repeated in a row is counted."""
    runs = [(line, len(list(run))) for line, run in groupby(text.split("\n")) if line.strip()]
    return "\n".join(f"{line} (x{n})" if n > 2 else "\n".join([line] * n) for line, n in runs)


def id_of(line: str) -> str:
    """Return the id of the element that a line shows; empty if it shows none."""
    found = ELEMENT.match(line)
    return found[1].strip("'") if found else ""


def without_id(line: str) -> str:
    """Return what a line says of its element."""
    return ELEMENT.sub("", line, count=1)


def caption(seen: str) -> str:
    """Return what stands above the first element; of a text without elements all."""
    lines = seen.split("\n")
    first = next((i for i, line in enumerate(lines) if ELEMENT.match(line)), len(lines))
    return "\n".join(lines[:first])


def pivotal(seen: str, action: str, kept: Sequence[str] = ()) -> str:
    """Return the lines of an observation that the history keeps, each cut to `LONGEST`.

    These are the lines of the elements with the ids `kept`, and those that the action names, by id
    or by words. If there is none, it is the first element, which names the page, and of a text
    without elements the last line.
    """
    ids, words = {*kept}, set[str]()
    for id, said in TARGET.findall(action):
        ids.add(id.strip("'")) if id else words.add(said)
    elements = [line for line in seen.split("\n") if ELEMENT.match(line)]
    worded = [line for line in elements if any(f"'{said}'" in line for said in words)][:1]
    found = [line for line in elements if id_of(line) in ids or line in worded]
    found = found or elements[:1] or seen.split("\n")[-1:]
    return "\n".join(_cut(line.strip()) for line in found)


def ranked(seen: str, query: str, top: int, best: Retrieval) -> str:
    """Return an observation with its caption and the `top` lines that fit the query best.

    Lines keep their order, and each stands below those that it is in. Where fewer lines fit, the
    first of the other lines with an element follow. A last line counts those that are left out.
    """
    head = caption(seen)
    lines = seen[len(head) :].strip("\n").split("\n")
    if len(lines) <= top:
        return seen
    chosen = best(query, [line.strip() for line in lines], top)
    others = (i for i, line in enumerate(lines) if i not in chosen and ELEMENT.match(line))
    asked = [*chosen, *islice(others, top - len(chosen))]
    shown = {*asked, *(above for index in asked for above in _above(lines, index))}
    left = f"({len(lines) - len(shown)} of {len(lines)} lines are left out.)"
    found = [line for index, line in enumerate(lines) if index in shown]
    return "\n".join(filter(None, [head, *found, left if len(shown) < len(lines) else ""]))


def _above(lines: Sequence[str], index: int) -> list[int]:
    """Return the indices of the lines that a line is indented below."""
    found: list[int] = []
    depth = _indent(lines[index])
    for above in range(index - 1, -1, -1):
        if depth == 0:
            break
        if _indent(lines[above]) < depth:
            found.append(above)
            depth = _indent(lines[above])
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else line[: LONGEST - 2] + " …"
