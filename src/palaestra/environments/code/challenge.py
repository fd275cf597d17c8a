"""What is to be done in a work folder: its files, the words, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from palaestra.environments.code.folder import Folder, rebuilt


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that must hold in the end."""

    holds: Callable[[Folder], bool]
    reference: str  # a command that brings it about where `needs` are as at the start
    needs: tuple[str, ...] = ()  # paths


@dataclass(frozen=True, slots=True)
class Challenge:
    """A task in a work folder."""

    words: str
    files: Mapping[str, bytes]
    goals: tuple[Goal, ...]
    kept: frozenset[str] = frozenset()  # paths that must stay as they are
    setup: str = ""  # a command run once the files are there

    def share(self, folder: Folder) -> float:
        """How many of the goals hold, in [0, 1]."""
        return sum(goal.holds(folder) for goal in self.goals) / len(self.goals)

    def intact(self, folder: Folder, start: Folder) -> bool:
        """Whether what must stay is as it was."""
        return all(folder.get(path) == start[path] for path in self.kept)

    def way(self, folder: Folder, start: Folder) -> list[str]:
        """Commands that solve it, to be given in the work folder, whatever was done to it."""
        missing = [goal for goal in self.goals if not goal.holds(folder)]
        wanted = set(self.kept).union(*(goal.needs for goal in missing))
        damaged = [path for path in sorted(wanted) if folder.get(path) != start[path]]
        repairs = [rebuilt(path, start[path]) for path in damaged]
        return [*repairs, *dict.fromkeys(goal.reference for goal in missing)]
