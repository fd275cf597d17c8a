"""Exemplars: solved episodes of like tasks, replayed in the prompt step by step.

Source: Zheng et al. 2024, "Synapse: Trajectory-as-Exemplar Prompting with Memory for Computer
Control". The `k` solved episodes whose beginning fits the present one best are shown, oldest first;
of each page the lines that the episode used there or later (`page_lines.py`), and then the action.
"""

from __future__ import annotations

import re

from palaestra.agents.memory.cross_episode import PastEpisode
from palaestra.agents.memory.retrieval import Retrieval
from palaestra.agents.page_lines import TARGET, caption, compact, pivotal

HEAD = "\n\nA task like this one, and how it was solved:\n"
LONGEST = 60  # steps of an episode in the prompt
USED = 4  # lines of a page that are shown because the episode used them later


def exemplars(known: list[PastEpisode], opening: str, k: int, best: Retrieval) -> str:
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
        said = (words for _, words in TARGET.findall(" ".join(actions[index:])) if words)
        later = re.compile("|".join(rf"(?<!\w){re.escape(words)}(?!\w)" for words in said) or "$.")
        used = [line.strip() for line in pages[index].split("\n") if later.search(line)][:USED]
        lines += [*dict.fromkeys([*pivotal(pages[index], action).split("\n"), *used])]
        lines.append(f"> {action}")
    return "\n".join(lines)
