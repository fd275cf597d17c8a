"""The repository worlds: bugs that are verified, tests that are hidden, credit for each repair."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import MissingSystemPart
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject, follow
from palaestra.environments.families.repository.environment import (
    SITES,
    Repository,
    _split,
    fixed_share,
)
from palaestra.environments.families.repository.examiner import expressions, sources
from palaestra.environments.families.repository.packages import PACKAGES
from palaestra.environments.shared.folder_environment import SUBMIT
from palaestra.environments.shared.mutation import mutated, mutations

ID = "repository/mdurl@unsafe"
SOURCE = '''
LIMIT = 3  # no function: left alone

def f(a, b, c=None):
    """No text is changed: 1 + 1 == 2."""
    if not a or b in (1, 2):  # a comment stays
        return g(a, b[1:])
    return "%d" % (a // 2) if a <= b else a + b
'''


def task(index: int = 0, split: Split = Split.TRAIN, id: str = ID) -> Task:
    return registry.tasks(id).task(split, index)


@pytest.fixture(scope="module")
def world() -> Iterator[Repository]:
    found = Repository("mdurl@unsafe")
    yield found
    found.close()


def test_every_mutation_is_python_and_another_program() -> None:
    found = mutations(SOURCE)
    kinds = {mutation.kind for mutation in found}
    assert kinds == {
        "comparison", "condition", "dropped return", "off by one", "operator", "swapped arguments"
    }  # fmt: skip
    for mutation in found:
        changed = mutated(SOURCE, mutation)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutation
        differing = [a != b for a, b in zip(changed.splitlines(), SOURCE.splitlines(), strict=True)]
        assert sum(differing) == 1 and "# a comment stays" in changed
        assert "1 + 1 == 2" in changed and "LIMIT = 3" in changed


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_many_places_for_bugs_and_many_examples(name: str) -> None:
    found = [m for path, source in sources(name).items() for m in mutations(source)]
    assert len(found) > 80 and len(expressions(name)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(ID))


@pytest.mark.slow
@pytest.mark.parametrize("name", Repository.names())
def test_every_bug_is_found_by_hidden_tests_and_fixed_by_the_oracle(name: str) -> None:
    world = Repository(f"{name}@unsafe")
    for split in Split:
        for index in range(2):
            world.reset(task(index, split, f"repository/{name}"))
            path = [world.progress()] + [
                s.progress or 0.0 for _, s in follow(world, world.oracle())
            ]
            assert path[0] == 0.0 and path == sorted(path) and path[-1] == 1.0
    world.close()


def test_doing_nothing_solves_nothing_and_reverting_the_bug_does(world: Repository) -> None:
    first = world.reset(task()).text
    assert "mdurl" in first and "should give" in first
    assert not world.step(Action(SUBMIT)).success
    world.reset(task())
    assert follow(world, world.oracle())[-1][0].success


def test_an_edit_replaces_what_occurs_once(world: Repository) -> None:
    world.reset(task())
    ((path, bug),) = world._broken.bugs
    old = world._broken.files[path].splitlines()[bug.line - 1]
    new = sources("mdurl")[path].splitlines()[bug.line - 1]
    seen = world.step(Action(f"edit {path}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"))
    assert seen.observation.text == f"Edited {path}." and world.progress() == 0.9
    again = world.step(Action(f"edit {path}\n<<<<<<<\nnowhere\n=======\n{new}\n>>>>>>>"))
    assert "occurs 0 times" in again.observation.text
    gone = world.step(Action("edit ../../etc/passwd\n<<<<<<<\na\n=======\nb\n>>>>>>>"))
    assert "Edited" not in gone.observation.text


def test_what_breaks_on_import_has_no_credit_and_the_oracle_mends_it(world: Repository) -> None:
    world.reset(task())
    world.step(Action("echo 'import nothing' >> mdurl/__init__.py; rm mdurl/_decode.py"))
    assert world.progress() == 0.0
    assert follow(world, world.oracle())[-1][0].success


def test_neither_tests_nor_right_answers_are_in_the_folder(world: Repository) -> None:
    shown = world.reset(task()).text
    inside = b"\n".join(entry.data for entry in world.folder.values()).decode()
    hidden = [one for one in expressions("mdurl") if one not in shown]
    assert len(hidden) >= len(expressions("mdurl")) - 2  # the example, and what is a part of it
    assert not [one for one in hidden if one in inside]


def test_a_package_that_lies_about_itself_gains_nothing(world: Repository) -> None:
    world.reset(task())
    lie = "import os, json; print(json.dumps({'found': ['1'] * 999, 'executed': []})); os._exit(0)"
    world.step(Action(f'echo "{lie}" > mdurl/__init__.py'))
    assert world.progress() == 0.0 and not world.step(Action(SUBMIT)).success


@pytest.mark.slow
def test_no_place_of_a_bug_belongs_to_two_splits(world: Repository) -> None:
    places: dict[Split, set[tuple[str, int]]] = {}
    for split in Split:
        for index in range(2):
            world.reset(task(index, split))
            found = places.setdefault(split, set())
            found |= {(path, bug.line) for path, bug in world._broken.bugs}
    assert not places[Split.TRAIN] & places[Split.TEST]
    share = [sum(_split(site) is split for site in SITES["mdurl"]) for split in Split]
    assert min(share) > len(SITES["mdurl"]) / 20


def test_credit_is_what_is_fixed_less_what_is_broken() -> None:
    right = ["a", "b", "c", "d"]
    assert fixed_share({0, 1}, ["a", "x", "c", "d"], right) == 0.5
    assert fixed_share({0, 1}, ["a", "x", "x", "d"], right) == 0.0
    assert fixed_share({0, 1}, right, right) == 1.0


def test_random_actions_are_understood(world: Repository) -> None:
    world.reset(task())
    rng = random.Random(1)
    assert all(world.step(world.sample_action(rng)).observation.text for _ in range(4))


def test_within_walls_no_installed_copy_is_seen() -> None:
    world = Repository("mdurl")
    try:
        world.reset(task())
    except MissingSystemPart as error:
        pytest.skip(str(error))
    command = 'cd /; for it in mdurl pip; do python3 -c "import $it" 2>&1 | tail -1; done'
    assert world.step(Action(command)).observation.text.count("ModuleNotFoundError") == 2
    assert follow(world, world.oracle())[-1][0].success
    world.close()
