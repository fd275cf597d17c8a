"""Programs are graded by hidden tests, and each problem has wrong programs that its tests catch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import UnknownName
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.programs.environment import MUTANTS, Programs, run, versions
from palaestra.environments.families.programs.problems import PROBLEMS, SHOWN, Problem
from palaestra.sandbox.factory import kinds

SANDBOX = "bubblewrap" if kinds()["bubblewrap"] is None else "unsafe"
ID = f"programs/functions@{SANDBOX}"


def begun(index: int = 0) -> Programs:
    world = Programs(f"functions@{SANDBOX}")
    world.reset(registry.tasks(ID).task(Split.TEST, index))
    return world


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(ID))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_tests_pass_with_their_own_program_alone(problem: Problem) -> None:
    found = versions(problem, SANDBOX)
    assert len(found) == 1 + MUTANTS and len(problem.calls) > SHOWN
    assert found[0].source == problem.solution
    sources = {one.source for one in found}
    assert len(sources) == len(found)
    for version in found:
        for tests in found:
            space: dict[str, object] = {}
            exec(version.source, space)  # our own code, which ended in the sandbox
            assert passes(tests.tests, space) == (version is tests)


def passes(tests: str, space: dict[str, object]) -> bool:
    try:
        exec(tests, space)
    except AssertionError:
        return False
    return True


def test_a_program_that_fails_some_hidden_tests_makes_progress_only() -> None:
    world = begun()
    problem = world._problem
    first = problem.calls[0]
    right = run(problem.solution, (first,), SANDBOX)[0]
    last = world.step(Action(f"```python\ndef {problem.name}(*given):\n    return {right}\n```"))
    assert last.terminated and not last.success and 0 < world.progress() < 1


def test_a_module_whose_own_assertions_fail_is_no_solution() -> None:
    world = begun()
    last = world.step(Action(f"{world._problem.solution}\nassert False"))
    assert not last.success and world.progress() == 0.0
    assert begun().step(Action("def nothing(")).terminated


def test_splits_share_no_problem() -> None:
    shown = {
        split: {
            Programs("functions").reset(registry.tasks(ID).task(split, index)).text
            for index in range(40)
        }
        for split in Split
    }
    assert [len(shown[split]) for split in Split] == [6, 3, 3]
    assert len(set.union(*shown.values())) == len(PROBLEMS)


def test_an_unknown_sandbox() -> None:
    with pytest.raises(UnknownName, match="bubblewrap"):
        registry.spec("programs/functions@bubble")
