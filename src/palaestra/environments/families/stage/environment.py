"""The environment of a stage: a scene is to be set up, and the engine refuses what is illegal.

`stage/scene`: a script says where two actors stand and which two shots it needs. A plan names the
actors' cells and those of the cameras: "marks: Ann B2, Ben D4; shots: A2, F4". The engine refuses a
plan with an illegal position or shot and says why; the third refusal ends the task.

Source: Xu et al. 2025 (FilmAgent, with a 3-D engine).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.task import Task
from palaestra.core.team_words import WRONG
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.families.stage.engine import CELLS, Shot, Stage
from palaestra.environments.shared.known_answer import KnownAnswer

TAKES = 3
ACTORS = ("Ann", "Ben")
FURNITURE = ("table", "piano", "sofa", "lamp")
PLAN = re.compile(r"marks: Ann ([A-Z]\d), Ben ([A-Z]\d); shots: ([A-Z]\d), ([A-Z]\d)")


class Scene(
    KnownAnswer,
    id="stage",
    capabilities={"state_key", "snapshot", "progress"},
    typical_turns=4,
):
    """A scene of two actors and two shots."""

    instructions = (
        "Set up a scene on a stage with columns A to F and rows 1 to 4. Cameras see along rows, "
        "columns and diagonals, not past furniture or actors, from a free cell: a close shot is "
        "from one cell away, a medium one from two, a wide one from three or more. Reply with the "
        "cells of the actors and of the cameras, such as B2: marks: Ann …, Ben …; shots: …, …"
    )

    def __init__(self, name: str = "scene") -> None:
        super().__init__(name)
        self._takes, self._solved, self._share = 0, False, 0.0

    @classmethod
    def names(cls) -> list[str]:
        return ["scene"]

    def _begin(self, task: Task) -> Observation:
        """Build a stage.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        rng = random.Random(f"stage {task.seed}")
        while True:
            cells = rng.sample(CELLS, len(FURNITURE) + len(ACTORS))
            self._stage = Stage(
                dict(zip(cells, FURNITURE, strict=False)),
                dict(zip(ACTORS, cells[len(FURNITURE) :], strict=True)),
            )
            sizes = rng.choices(("close", "medium", "wide"), k=len(ACTORS))
            self._shots = [Shot(size, actor) for size, actor in zip(sizes, ACTORS, strict=True)]
            if all(self._stage.cameras(shot) for shot in self._shots):
                break
        self._takes, self._solved, self._share = 0, False, 0.0
        there = ", ".join(f"the {name} on {cell}" for cell, name in self._stage.furniture.items())
        marks = ", ".join(f"{actor} stands on {cell}" for actor, cell in self._stage.marks.items())
        shots = ", then ".join(map(str, self._shots))
        return Observation(f"Furniture: {there}. {marks}. The script needs {shots}.")

    def _act(self, action: Action) -> Transition:
        plan = PLAN.fullmatch(" ".join(action.text.split()).strip(" ."))
        if plan is None:
            return refused(self.instructions)
        cells = plan.groups()
        wrong = {"marks": self._misplaced(cells[:2]), "shots": self._illegal(cells[2:])}
        against = [f"engine: {WRONG}: {part}; {', '.join(w)}" for part, w in wrong.items() if w]
        count = sum(map(len, wrong.values()))
        self._takes += 1
        self._solved = not count
        self._share = max(self._share, 1 - count / (2 * len(ACTORS)))
        over = self._solved or self._takes == TAKES
        return Transition(
            Observation("\n".join(against) or "The scene is shot."),
            float(self._solved),
            terminated=over,
            success=self._solved,
            info={"violations": count, "illegal": [part for part, why in wrong.items() if why]},
        )

    def state_key(self) -> str:
        return hashed(self._current().seed, self._takes, self._share, self._solved)

    def progress(self) -> float:
        """Return the largest share of positions and shots that were legal in one plan."""
        self._current()
        return self._share

    def answer(self) -> Action:
        """Return the plan with the marks of the script and the first cell for each shot."""
        self._current()
        return Action(
            _plan(list(self._stage.marks.values()), [self._camera(s) for s in self._shots])
        )

    def sample_action(self, rng: random.Random) -> Action:
        """Return a plan of random cells, with the answer's in place of other legal cameras.

        So a plan that differs from the answer in a part is illegal in this part.
        """
        self._current()
        cameras = [rng.choice(CELLS) for _ in self._shots]
        legal = [
            self._stage.illegal(*pair) is None for pair in zip(self._shots, cameras, strict=True)
        ]
        cameras = [
            self._camera(shot) if fine else cell
            for shot, cell, fine in zip(self._shots, cameras, legal, strict=True)
        ]
        return Action(_plan(rng.choices(CELLS, k=len(ACTORS)), cameras))

    def _camera(self, shot: Shot) -> str:
        return self._stage.cameras(shot)[0]

    def _misplaced(self, cells: Sequence[str]) -> list[str]:
        pairs = zip(ACTORS, cells, strict=True)
        found = [self._stage.misplaced(actor, cell) for actor, cell in pairs]
        return [why for why in found if why is not None]

    def _illegal(self, cells: Sequence[str]) -> list[str]:
        pairs = zip(self._shots, cells, strict=True)
        found = [self._stage.illegal(shot, cell) for shot, cell in pairs]
        return [why for why in found if why is not None]


def _plan(cells: Sequence[str], cameras: Sequence[str]) -> str:
    marks = ", ".join(f"{actor} {cell}" for actor, cell in zip(ACTORS, cells, strict=True))
    return f"marks: {marks}; shots: {', '.join(cameras)}"
