"""Conversations by written procedures as an environment: `procedures/FOLDER`.

FOLDER is the path of what `palaestra synthesise` made of a domain with procedures. The agent reads
the whole procedure first (a static prompt); with `:steps` it is told one step at a time, by a state
machine that knows where in the graph the conversation is (a dynamic prompt; JourneyBench, Balaji et
al. 2026). No path of one split is in another; where there are fewer than three, no conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.core.dealt_splits import deal
from palaestra.core.environment import Action, Observation, Spec, Transition, declared
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.families.synthesised.finished_folder import (
    TASK,
    folder_of,
    listed,
    made_in,
    name_parts,
)
from palaestra.environments.families.synthesised.procedure_desk import ProcedureDesk
from palaestra.environments.families.synthesised.procedures import Path, Procedure, parse_procedure

STEPS = "steps"  # the form in which a step is told at a time
FORMS = (STEPS,)


class Procedures(ProcedureDesk, id="procedures", free_text=True):
    """A user, and one of a folder's procedures that says how to help them."""

    def __init__(self, name: str = "") -> None:
        """Read the folder; raises InputError if it has no procedures."""
        path, form = name_parts(name, FORMS)
        self._settings, self._lines = _conversations(path)
        self._stepwise = form == STEPS
        super().__init__(*self._conversation(next(iter(self._lines))))
        self.spec = self.spec_of(name)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, path = declared(cls).named(name), name_parts(name, FORMS)[0]
        if not path:
            return spec
        longest = max(len(line["path"]) for line in _conversations(path)[1].values())
        return replace(spec, typical_turns=longest + 2)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        path = folder_of(environment, FORMS)
        if not path:
            return listed(environment, {})  # of the family itself, without a folder
        return listed(environment, _splits(_conversations(path)[1]))

    @classmethod
    def factors(cls, name: str) -> Mapping[str, Sequence[str]]:
        """Return the other prompt for the same conversations."""
        path, form = name_parts(name, FORMS)
        return {"prompt": [path if form else f"{path}:{STEPS}"]}

    def _begin(self, task: Task) -> Observation:
        number: Any = dict(task.parameters).get(TASK)
        known = _splits(self._lines).get(task.split, ())
        if list(task.parameters) != [TASK] or number not in known:
            raise InputError(
                f"The task '{task.id}' with the parameters {dict(task.parameters)} is none of "
                f"'{self.spec.id}'; take one from its task set."
            )
        self._place(*self._conversation(number))
        first = super()._begin(task)
        if not self._stepwise:
            return first
        return Observation(self._with_step(first.text.replace(f"{self._heading}\n", "")))

    def _act(self, action: Action) -> Transition:
        transition = super()._act(action)
        if not self._stepwise or transition.terminated:
            return transition
        shown = self._with_step(transition.observation.text)
        return replace(transition, observation=Observation(shown))

    def _conversation(self, number: int) -> tuple[Procedure, Path, Mapping[str, str]]:
        """Return a procedure, the path through it, and what the user says."""
        line = self._lines[number]
        file = line["procedure"]
        procedure = parse_procedure(self._settings["procedures"][file], file)
        path = tuple((number, outcome) for number, outcome in line["path"])
        return procedure, path, line["slots"]

    def _with_step(self, text: str) -> str:
        """Return a text with the step that comes next, as the procedure words it."""
        step, _ = self._steps[self._at]
        return f"{text}\nYour next step: {self._procedure.text.splitlines()[step.line - 1].strip()}"


def _conversations(path: str) -> tuple[Mapping[str, Any], Mapping[int, Any]]:
    """Return a folder's settings, and the lines of the stage `paths` that passed, by number.

    Raises:
        InputError: as `finished_stages`, or there are none.
    """
    settings, made = made_in(path)
    lines = {at: line for at, line in enumerate(made.get("paths", [])) if not line["rejected"]}
    if not lines:
        raise InputError(
            f"The synthesis in {path} has no conversations; add `procedures` to its domain, and "
            "make it in a new folder."
        )
    return settings, lines


def _splits(lines: Mapping[int, Any]) -> Mapping[Split, list[int]]:
    return deal({at: f"{line['procedure']} {line['path']}" for at, line in lines.items()})
