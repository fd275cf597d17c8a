"""Exemplars: solved episodes of like tasks, replayed in the prompt step by step.

Source: Zheng et al. 2024, "Synapse: Trajectory-as-Exemplar Prompting with Memory for Computer
Control". The `k` solved episodes whose task fits the present one best (BM25) are shown, oldest
first: of each page the lines that the episode used there or later (`page_lines.py`), and then the
action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from palaestra.agents.memory.cross_episode import PastEpisode
from palaestra.agents.memory.retrieval import best
from palaestra.agents.page_lines import caption, compact, pivotal
from palaestra.core.errors import InputError
from palaestra.core.gestures.gesture_line import read_line

HEAD = "\n\nA task like this one, and how it was solved:\n"
LONGEST = 60  # steps of an episode in the prompt
PROSE = 240  # characters from which on a line is not shown


def exemplars(known: list[PastEpisode], opening: str, k: int) -> str:
    """Return at most `k` solved episodes as text; empty if none is like the present one."""
    solved = [past for past in known if past.solved]
    found = best(opening, [caption(past.first) for past in solved], k)
    return "".join(HEAD + told(solved[index]) for index in sorted(found))


def told(past: PastEpisode) -> str:
    """Return an episode as text: its caption, and for each step what was used and the action."""
    pages = [compact(text) for text in (past.first, *(seen for _, seen in past.steps))]
    actions = [action for action, _ in past.steps[:LONGEST]]
    lines = [caption(pages[0])]
    for index, action in enumerate(actions):
        later = [text for one in actions[index:] if (text := said(one))]
        used = _lines_with(pages[index].removeprefix(lines[0]), later)
        lines += [*dict.fromkeys([*pivotal(pages[index], action).split("\n"), *used])]
        lines.append(f"> {action}")
    return "\n".join(lines)


def said(action: str) -> str:
    """Return what a gesture types, selects or answers; empty if it says nothing, or is none."""
    with suppress(InputError):
        return read_line(action).text
    return ""


def _lines_with(page: str, texts: Sequence[str]) -> list[str]:
    """Return the shortest line of a page with each of some texts as a word; of prose none."""
    lines = [line.strip() for line in page.split("\n") if len(line) <= PROSE]
    found: list[str] = []
    for text in texts:
        word = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
        having = [line for line in lines if word.search(line.replace(",", "")) or word.search(line)]
        found += [min(having, key=len)] if having else []
    return [line for line in lines if line in found]
