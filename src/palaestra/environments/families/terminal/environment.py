"""The terminal environment: shell tasks on the files of a folder, checked on the final folder.

Ids: `terminal/NAME` for each family of `tasks.py` (`find`, `rename`, `count`, …), with
`-hard` for its second level; `terminal/mixed` and `terminal/mixed-hard` sample a family per task.
After Terminal-Bench (2025) and NL2Bash (Lin et al. 2018): everyday tasks with checkers on the final
file system. Here they are generated from a seed, so their number is unlimited.
"""

from __future__ import annotations

import random

from palaestra.core.task import Task
from palaestra.environments.families.terminal.tasks import FAMILIES
from palaestra.environments.shared.challenge import Challenge
from palaestra.environments.shared.folder_environment import HOW, FolderEnvironment

HARD = "-hard"


class Terminal(FolderEnvironment, id="terminal"):
    """A shell task in a folder."""

    @classmethod
    def names(cls) -> list[str]:
        return [name + level for name in [*FAMILIES, "mixed"] for level in ("", HARD)]

    @property
    def instructions(self) -> str:
        return f"You work at a terminal, in a folder of your own. {HOW}"

    def challenge(self, task: Task) -> Challenge:
        rng = random.Random(f"terminal {self.kind} {task.seed}")
        name = self.kind.removesuffix(HARD)
        name = rng.choice(sorted(FAMILIES)) if name == "mixed" else name
        return FAMILIES[name](rng, 2 if self.kind.endswith(HARD) else 1)
