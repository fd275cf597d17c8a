"""Diff history: the first observation in full, then only what changed (Piterbarg et al. 2024).

The unit of observations with several lines is the line, as in the paper's Unix diffs; the unit of
those with one line is the part between commas. Where a difference is not shorter than the
observation, the observation is sent.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.core.session import Session

MARK = "@@ "
FORMAT = (
    "After the first observation you see only what changed: after `@@ line N` or `@@ part N`, what "
    "was there begins with -, what is there now begins with +."
)
UNITS = {"line": "\n", "part": ", "}


class DiffHistory(History):
    """A conversation history with differences in place of observations."""

    def shown(self, index: int) -> str:
        return difference(self.seen[index], self.seen[index + 1])


class DiffAgent(RememberingAgent):
    """A chat that shows observations as differences (diff history, Piterbarg et al.)."""

    name = "diff"

    def __init__(self, *, history: Keep = None, thoughts: bool = False) -> None:
        """Show the model all exchanges, or only the last `history`."""
        self.history, self.thoughts = history, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        instructions = f"{self.instructions(session)}\n{FORMAT}"
        return DiffHistory(instructions, session.observation.text, self.history)


def difference(before: str, after: str) -> str:
    """Return how `after` differs from `before`; `after` itself if that is shorter."""
    unit = "line" if "\n" in before + after else "part"
    old, new = before.split(UNITS[unit]), after.split(UNITS[unit])
    found = []
    for kind, i, j, k, n in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            found.append(f"{MARK}{unit} {i + 1}")
            found += [f"-{part}" for part in old[i:j]] + [f"+{part}" for part in new[k:n]]
    diff = "\n".join(found) or f"{MARK}{unit} 1"
    return after if len(diff) >= len(after) and not after.startswith(MARK) else diff
