"""Websites: a site of several files to be built from promises, judged by driving each of them.

Ids: `websites/small` (five promised functions), `websites/large` (ten). The agent works in a folder
with a shell (`folder_environment.py`); `submit` ends the task, which is solved if every function
does what was promised, as the judge finds in the browser (`site_judge.py`). Progress is the share
that does. After WebGen-Bench (Lu et al. 2025); ours: what sites promise, and the tests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.core.environment import Action
from palaestra.core.task import Task
from palaestra.environments.base import without_parameters
from palaestra.environments.families.websites.reference_site import (
    FIRST,
    LAYOUTS,
    SitePlan,
    drawn_plan,
    site_files,
)
from palaestra.environments.families.websites.site_functions import FUNCTIONS
from palaestra.environments.families.websites.site_judge import Finding, SiteJudge
from palaestra.environments.shared.challenge import Challenge
from palaestra.environments.shared.folder_environment import HOW, SUBMIT, FolderEnvironment
from palaestra.sandbox.base import WORK

SIZES = {"small": 5, "large": len(FUNCTIONS)}


class Websites(FolderEnvironment, id="websites", typical_turns=12):
    """A folder, and a website to be built there."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._judge = SiteJudge()
        self._found: dict[tuple[tuple[str, bytes], ...], list[Finding]] = {}

    @classmethod
    def names(cls) -> list[str]:
        return list(SIZES)

    @property
    def instructions(self) -> str:
        return (
            f"You build static websites: HTML, CSS and JavaScript without other sites. {HOW}\n"
            f"The first page is {FIRST}. Each promise is tested in a browser, as it is worded."
        )

    def challenge(self, task: Task) -> Challenge:
        without_parameters(task, "choose a size by its name instead")
        rng = random.Random(f"websites {self.kind} {task.seed}")
        self.plan: SitePlan = drawn_plan(rng, SIZES[self.kind])
        self._layout = rng.choice(LAYOUTS)
        self._found.clear()
        return Challenge(self.plan.words(), {}, ())

    def graded(self) -> float:
        """Return the share of the promised functions that do what was promised."""
        found = self.findings()
        return sum(one.holds for one in found) / len(found)

    def findings(self) -> list[Finding]:
        """Return what the judge finds of the site as it is in the folder."""
        files = {path: entry.data for path, entry in self.folder.items() if entry.link is None}
        if FIRST not in files:
            return [Finding(name, f"there is no {FIRST}") for name in self.plan.functions]
        key = tuple(sorted(files.items()))
        if key not in self._found:
            self._found[key] = self._judge.findings(files, self.plan)
        return self._found[key]

    def oracle(self) -> Sequence[Action]:
        """Return commands that write each file of the reference that is not there as it is."""
        shell = self._running()
        if self._over:
            return []
        there = {path: entry.data for path, entry in self.folder.items() if entry.link is None}
        plan = [
            written(path, text)
            for path, text in site_files(self.plan, self._layout).items()
            if there.get(path) != text.encode() and self._share < 1.0
        ]
        back = ["cd"] if plan and shell.state.folder != WORK else []
        return [Action(command) for command in (*back, *plan, SUBMIT)]

    def sample_action(self, rng: random.Random) -> Action:
        """Return a command that writes a file with a defect, or one that only looks."""
        if rng.random() < LOOKING:
            return super().sample_action(rng)
        defect = rng.choice(
            [one for name in self.plan.functions for one in FUNCTIONS[name].defects]
        )
        files = site_files(self.plan, self._layout, defect)
        return Action(written(defect.file, files[defect.file]))

    def close(self) -> None:
        super().close()
        self._judge.close()


LOOKING = 0.3  # share of sampled commands that write no file of the site


def written(path: str, text: str) -> str:
    """Return a command that writes a file."""
    return f"cat > {path} <<'END'\n{text}END"
