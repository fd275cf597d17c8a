"""The terminal world: shell tasks over the files of a folder, judged by what the folder becomes.

Ids: `terminal/NAME` for each family of `terminal_tasks.py` (`find`, `rename`, `count`, …), with
`-hard` for its second level; `terminal/mixed` and `terminal/mixed-hard` draw a family per task.
After Terminal-Bench (2025) and NL2Bash (Lin et al. 2018): tasks of daily use with checkers over the
final file system; made anew here, from dice, so that there is no end of them.
"""

from __future__ import annotations

import random

from palaestra.core.task import Task
from palaestra.environments.code.challenge import Challenge
from palaestra.environments.code.folder_world import HOW, FolderWorld
from palaestra.environments.code.terminal_tasks import FAMILIES

HARD = "-hard"


class Terminal(FolderWorld):
    """Shell tasks."""

    @classmethod
    def names(cls) -> list[str]:
        return [name + level for name in [*FAMILIES, "mixed"] for level in ("", HARD)]

    @property
    def instructions(self) -> str:
        return f"You work at a terminal, in a folder of your own. {HOW}"

    def challenge(self, task: Task) -> Challenge:
        dice = random.Random(f"terminal {self.kind} {task.seed}")
        name = self.kind.removesuffix(HARD)
        name = dice.choice(sorted(FAMILIES)) if name == "mixed" else name
        return FAMILIES[name](dice, 2 if self.kind.endswith(HARD) else 1)
