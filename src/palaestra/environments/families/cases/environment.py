"""The environment of generated cases: one answer of several parts, each of which counts.

`cases/triage`   a patient: the department and the diagnosis
`cases/record`   a document on a disease: its department, its name and its signs
`cases/care`     a patient's question: a reply that is safe and covers a checklist
`cases/table`    a question about a table: cells, operation, number and unit
`cases/paper`    a paper: its limitations, one of each kind
`cases/partner`  a pool of candidates: who is best by which features

The answer ends the task. Its reward is the share of parts that are right, and it is a success if
all are. What team templates are shown on is in `scripts/templates_study.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.task import Task
from palaestra.core.team_words import answer_parts
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.families.cases.case import Case
from palaestra.environments.families.cases.documents import PAPER, TABLE, paper, table
from palaestra.environments.families.cases.medical import (
    CARE,
    RECORD,
    TRIAGE,
    care,
    record,
    triage,
)
from palaestra.environments.families.cases.partners import PARTNER, partner
from palaestra.environments.shared.known_answer import KnownAnswer

CASES: dict[str, tuple[str, Callable[[random.Random], Case]]] = {
    "triage": (TRIAGE, triage),
    "record": (RECORD, record),
    "care": (CARE, care),
    "table": (TABLE, table),
    "paper": (PAPER, paper),
    "partner": (PARTNER, partner),
}


class Cases(
    KnownAnswer,
    id="cases",
    capabilities={"state_key", "snapshot", "progress"},
    typical_turns=2,
):
    """One case to be answered."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._rules, self._generate = CASES[name]
        self._case = self._generate(random.Random(0))  # its parts are those of all cases
        self._share = 0.0  # of the parts that were right

    @classmethod
    def names(cls) -> list[str]:
        return list(CASES)

    @property
    def instructions(self) -> str:
        form = "; ".join(f"{name}: …" for name in self._case.parts)
        return f"{self._rules} Reply with all parts in one line: {form}"

    def _begin(self, task: Task) -> Observation:
        """Generate a case.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        self._case = self._generate(random.Random(f"{self.spec.name} {task.seed}"))
        self._share = 0.0
        return Observation(self._case.text)

    def _act(self, action: Action) -> Transition:
        given = {name.casefold(): text for name, text in answer_parts(action.text).items()}
        if not given or not given.keys() <= self._case.parts.keys():
            return refused(self.instructions)
        right = [
            name
            for name, part in self._case.parts.items()
            if name in given and part.holds(given[name].partition(":")[2])
        ]
        self._over, self._share = True, len(right) / len(self._case.parts)
        return Transition(
            Observation(f"Right: {', '.join(right) or 'nothing'}."),
            reward=self._share,
            terminated=True,
            success=self._share == 1.0,
            info={"right": right},
        )

    def state_key(self) -> str:
        return hashed(self._current().seed, self._over, self._share)

    def progress(self) -> float:
        """Return the share of the parts that were right; 0 before the answer."""
        self._current()
        return self._share

    def answer(self) -> Action:
        """Return the right answer."""
        self._current()
        return Action(self._case.answer())

    def sample_action(self, rng: random.Random) -> Action:
        """Return an answer of random parts."""
        self._current()
        return Action(self._case.sample(rng))
