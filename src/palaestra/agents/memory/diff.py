"""Diff history: the first observation in full, then only what changed (Piterbarg et al. 2024).

Of observations with several lines the unit is the line, as in the paper's Unix diffs; of those in
one line the part between commas. A difference that is no shorter than the observation is not sent.
`patched` gets each observation back, word for word.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.agent import RememberingAgent
from palaestra.agents.memory.memory import Memory
from palaestra.core.message import Message, user
from palaestra.core.session import Session

MARK = "@@ "
FORMAT = (
    "After the first observation you see only what changed: after `@@ line N` or `@@ part N`, what "
    "was there begins with -, what is there now begins with +."
)
UNITS = {"line": "\n", "part": ", "}


class DiffHistory(History):
    """An append-only chat, or its last exchanges, with differences for observations."""

    @property
    def messages(self) -> list[Message]:
        found = super().messages
        told = len(found) // 2 - 1  # observations behind the one that is told in full
        seen = self.seen[len(self.seen) - told - 1 :]
        for place, (before, after) in enumerate(pairwise(seen)):
            found[3 + 2 * place] = user(difference(before, after))
        return found


class DiffAgent(RememberingAgent):
    """A chat in which observations are told as differences (diff history, Piterbarg et al.)."""

    name = "diff"

    def __init__(self, *, history: Keep = None, thoughts: bool = False) -> None:
        """With `history`, only so many of the last exchanges are told."""
        self.history, self.thoughts = history, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        told = f"{self.told(session)}\n{FORMAT}"
        return DiffHistory(told, session.observation.text, self.history)


def difference(before: str, after: str) -> str:
    """How `after` differs from `before`; `after` itself where that is shorter."""
    unit = "line" if "\n" in before + after else "part"
    old, new = before.split(UNITS[unit]), after.split(UNITS[unit])
    found = []
    for kind, i, j, k, n in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            found.append(f"{MARK}{unit} {i + 1}")
            found += [f"-{part}" for part in old[i:j]] + [f"+{part}" for part in new[k:n]]
    told = "\n".join(found) or f"{MARK}{unit} 1"
    return after if len(told) >= len(after) and not after.startswith(MARK) else told
