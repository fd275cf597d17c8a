"""The environment of programs: one Python function to be written, graded by hidden tests.

`programs/functions`: the reply is a Python module with the function, and perhaps assertions that
test it; it runs in a sandbox with hidden calls, whose results must be those of the solution. The
splits share no problem. `programs/functions@KIND` selects the sandbox. After HumanEval (Chen et al.
2021); wrong programs are mutations of the solution (`mutation.py`).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split, Task
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.families.programs.problems import PROBLEMS, SHOWN, Problem
from palaestra.environments.shared.expression_results import LIMITS, evaluated
from palaestra.environments.shared.known_answer import KnownAnswer
from palaestra.environments.shared.mutation import mutated, mutations
from palaestra.environments.shared.sandboxed import SandboxedEnvironment
from palaestra.sandbox import interpreter
from palaestra.sandbox.factory import open_sandbox

FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
MUTANTS = 4  # wrong programs of each problem


@dataclass(frozen=True, slots=True)
class Version:
    """A program, right or wrong, and tests that it passes."""

    source: str
    tests: str  # assertions about the calls that are shown

    def __str__(self) -> str:
        return f"{self.source}\n{self.tests}"


class Programs(
    SandboxedEnvironment,
    KnownAnswer,
    id="programs",
    capabilities={"state_key", "snapshot", "progress"},
    typical_turns=2,
):
    """One function to be written."""

    def __init__(self, name: str = "functions") -> None:
        super().__init__(name)
        self._problem = PROBLEMS[0]
        self._share = 0.0  # of the hidden tests that passed

    @classmethod
    def names(cls) -> list[str]:
        return ["functions"]

    @property
    def instructions(self) -> str:
        return (
            "Write a Python function. Reply with the module alone: the function, and if you like "
            "assertions that test it. Hidden tests judge it, once."
        )

    def _begin(self, task: Task) -> Observation:
        """Choose a problem of the task's split.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        problems = [p for n, p in enumerate(PROBLEMS) if _split(n) is task.split]
        self._problem = random.Random(f"program {task.seed}").choice(problems)
        self._share, self._solved = 0.0, False
        calls = ", ".join(self._problem.calls[:SHOWN])
        return Observation(f"{self._problem.text} It is called like this: {calls}.")

    def _act(self, action: Action) -> Transition:
        fenced = FENCED.search(action.text)
        source = (fenced[1] if fenced else action.text).strip()
        if not source:
            return refused(self.instructions)
        results = run(source, self._problem.calls, self._sandbox_kind)
        expected = run(self._problem.solution, self._problem.calls, self._sandbox_kind)
        passed = sum(one == right for one, right in zip(results, expected, strict=True))
        self._share = passed / len(results)
        self._over, self._solved = True, passed == len(results)
        return Transition(
            Observation(f"{passed} of {len(results)} hidden tests passed."),
            float(self._solved),
            terminated=True,
            success=self._solved,
        )

    def state_key(self) -> str:
        return hashed(self._current().split, self._current().seed, self._over, self._share)

    def progress(self) -> float:
        """Return the share of the hidden tests that passed; 0 before the reply."""
        self._current()
        return self._share

    def answer(self) -> Action:
        """Return the solution with tests that it passes."""
        self._current()
        return Action(str(versions(self._problem, self._sandbox_kind)[0]))

    def sample_action(self, rng: random.Random) -> Action:
        """Return a wrong program with tests that it passes."""
        self._current()
        return Action(str(rng.choice(versions(self._problem, self._sandbox_kind)[1:])))


@lru_cache(maxsize=4096)
def run(setup: str, calls: tuple[str, ...], sandbox: str) -> tuple[str, ...]:
    """Return the results of calls after a module, each as `repr` or as the error that it raises."""
    box = open_sandbox(sandbox, interpreter.settings(sandbox, LIMITS))
    try:
        return evaluated(box, setup, calls)[0]
    finally:
        box.close()


@lru_cache(maxsize=256)
def versions(problem: Problem, sandbox: str) -> tuple[Version, ...]:
    """Return the solution, and `MUTANTS` wrong programs that differ in the calls that are shown.

    Raises:
        EnvironmentFault: the solution cannot be run, or too few mutations of it are wrong and run.
    """
    source = problem.solution
    sources = [source, *(mutated(source, mutation) for mutation in mutations(source))]
    setup = f"spaces = []\nfor source in {sources!r}:\n    spaces.append({{}})\n"
    setup += "    exec(source, spaces[-1])\n"
    calls = tuple(f"spaces[{n}]['{problem.name}']{c}" for n in range(len(sources))
                  for c in (call.removeprefix(problem.name) for call in problem.calls))  # fmt: skip
    results = run(setup, calls, sandbox)
    width, found = len(problem.calls), dict[tuple[str, ...], Version]()
    for n, text in enumerate(sources):
        shown = results[n * width : n * width + SHOWN]
        if shown not in found and not any(one.startswith("raises ") for one in shown):
            calls_shown = zip(problem.calls, shown, strict=False)
            tests = [f"assert {call} == {result}" for call, result in calls_shown]
            found[shown] = Version(text, "\n".join(tests))
    right, *wrong = found.values()
    if right.source != source or len(wrong) < MUTANTS:
        raise EnvironmentFault("reset", f"'{problem.name}' has {len(wrong)} wrong programs")
    return right, *random.Random(problem.name).sample(wrong, MUTANTS)


def _split(number: int) -> Split:
    return (Split.TRAIN, Split.TRAIN, Split.VALIDATION, Split.TEST)[number % 4]
