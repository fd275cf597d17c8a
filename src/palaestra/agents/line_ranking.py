"""A ranker of a page's lines, trained on what references click and read: a linear model.

Source: Lù et al. 2024, "WebLINX", where a fine-tuned MiniLM ranks elements by the task; here a
line's score is a weighted sum of `FEATURES`. The weights maximise the likelihood of the right lines
among all lines of their page (conditional logit, McFadden 1974), on tasks of the training split of
real sites: `python scripts/pages_study.py fit FILE` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.agents.page_lines import ELEMENT
from palaestra.core.bm25 import scores, words

FEATURES = (
    "bm25",  # by the best of the page
    "share of its words that are the task's",
    "all of its words are the task's",
    "place from 0 (first) to 1",
    "element",
    "button",
    "link",
    "field",
    "list or option",
    "box to tick",
    "heading",
    "row of a table",
)
WEIGHTS = (0.8, 1.52, 0.84, 1.48, 0.92, 1.84, 0.82, 2.1, -0.16, -0.15, -1.4, 1.46)
_ROLES = (
    ("button", "menuitem", "tab"),
    ("link",),
    ("textbox", "searchbox", "spinbutton"),
    ("combobox", "listbox", "option"),
    ("checkbox", "radio", "switch"),
    ("heading",),
)
_ROLE = re.compile(r"(?:\[[^\]]*\] )?(\w+)")
_STATES = re.compile(r"(, [\w-]+(=('[^']*'|\w+))?)+$")  # and what a field holds


def features(query: str, texts: Sequence[str]) -> list[list[float]]:
    """Return the features of each line of a page for a task."""
    asked, fits = {*words(query)}, scores(query, texts)
    most = max(fits, default=0.0) or 1.0
    found = []
    for index, (line, fit) in enumerate(zip(texts, fits, strict=True)):
        element, role = ELEMENT.match(line), _ROLE.match(line)
        name = words(_STATES.sub("", line[role.end() :] if role else line))
        share = sum(word in asked for word in name) / len(name) if name else 0.0
        kinds = [float(element is not None and role is not None and role[1] in of) for of in _ROLES]
        place = index / len(texts)
        row = float("| " in line)
        found.append(
            [fit / most, share, float(share == 1), place, float(element is not None), *kinds, row]
        )
    return found


def best(query: str, texts: Sequence[str], count: int) -> list[int]:
    """Return the indices of the `count` lines with the highest scores, best first."""
    rated = [
        (sum(w * x for w, x in zip(WEIGHTS, line, strict=True)), -index)
        for index, line in enumerate(features(query, texts))
    ]
    return [-index for _, index in sorted(rated, reverse=True)[:count]]
