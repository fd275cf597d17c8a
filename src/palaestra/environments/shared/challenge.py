"""A task in a work folder: its files, its prompt text, and its goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from palaestra.environments.shared.folder_archive import Folder, restore_command


@dataclass(frozen=True, slots=True)
class Goal:
    """One condition on the final folder."""

    holds: Callable[[Folder], bool]
    reference: str  # a command that achieves it if the files in `needs` are unchanged
    needs: tuple[str, ...] = ()  # paths


@dataclass(frozen=True, slots=True)
class Challenge:
    """A task in a work folder."""

    words: str
    files: Mapping[str, bytes]
    goals: tuple[Goal, ...]
    kept: frozenset[str] = frozenset()  # paths that must not change
    setup: str = ""  # a command run after the files are written

    def share(self, folder: Folder) -> float:
        """Return the share of goals that hold, in [0, 1]."""
        return sum(goal.holds(folder) for goal in self.goals) / len(self.goals)

    def intact(self, folder: Folder, start: Folder) -> bool:
        """Return whether no kept path has changed."""
        return all(folder.get(path) == start[path] for path in self.kept)

    def plan(self, folder: Folder, start: Folder) -> list[str]:
        """Return commands that solve the task from any state of the folder; run them in it."""
        missing = [goal for goal in self.goals if not goal.holds(folder)]
        wanted = set(self.kept).union(*(goal.needs for goal in missing))
        damaged = [path for path in sorted(wanted) if folder.get(path) != start[path]]
        repairs = [restore_command(path, start[path]) for path in damaged]
        return [*repairs, *dict.fromkeys(goal.reference for goal in missing)]
