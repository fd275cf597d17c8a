"""Compositions of MiniWoB's pages hold the tasks of their parts, and want all of them, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from tests.browser.needed import without_miniwob

if why := without_miniwob():
    pytest.skip(why, allow_module_level=True)

from palaestra.environments.families.miniwob.composition import Composition, joined, listed
from palaestra.environments.families.miniwob.environment import MiniWob
from palaestra.environments.families.miniwob.solver import SOLVERS

PAIR = "click-button+enter-text"


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", [PAIR, "click-dialog+login-user:transition:reverse"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of(f"miniwob/{name}", steps=5, per_split=1), clause)
    assert not finding.broken, finding.broken


@pytest.mark.slow
@pytest.mark.parametrize("form", ["", ":transition", ":reverse"])
@pytest.mark.parametrize("name", listed())
def test_the_experts_of_the_parts_solve_the_whole(name: str, form: str) -> None:
    name = name.partition(":")[0] + form
    world = MiniWob(name)
    for task in registry.tasks(f"miniwob/{name}").take(Split.TEST, 2):
        world.reset(task)
        for action in world.oracle():
            last = world.step(action)
            assert last.valid, last.observation.text
        assert last.success and last.reward == 1.0
    world.close()


def begun(name: str, index: int = 0) -> MiniWob:
    world = MiniWob(name)
    world.reset(registry.tasks(f"miniwob/{name}").task(Split.TRAIN, index))
    return world


def test_a_task_holds_the_tasks_of_its_parts() -> None:
    whole, parts = begun(PAIR, 4), [begun(name, 4) for name in PAIR.split("+")]
    goals = [part.caption().rstrip(".") for part in parts]
    assert whole.caption() == f"{goals[0]}, and then {goals[1][0].lower()}{goals[1][1:]}."
    names = {element.name for element in whole.elements() if element.role == "button"}
    assert names == {
        element.name for part in parts for element in part.elements() if element.role == "button"
    }
    for world in (whole, *parts):
        world.close()


def test_a_part_that_is_finished_first_fails_the_whole() -> None:
    world = begun(PAIR)
    first, *second = world.oracle()
    for action in second:
        last = world.step(action)
    assert last.terminated and not last.success and last.reward == -1.0
    world.reset(registry.tasks(f"miniwob/{PAIR}").task(Split.TRAIN, 0))
    assert not world.step(first).terminated
    assert world.oracle() == second  # what is left
    for action in second:
        last = world.step(action)
    assert last.success
    world.close()


def test_a_part_that_fails_ends_the_whole() -> None:
    world = begun("click-test-2+enter-text")
    wrong = next(element for element in world.elements() if element.name == "TWO")
    last = world.step(Action(f"click [{wrong.id}]"))
    assert last.terminated and not last.success and last.reward == -1.0
    world.close()


def test_with_a_transition_one_part_is_shown_at_a_time() -> None:
    world = begun(f"{PAIR}:transition")

    def shown() -> list[str]:
        return [one.name for one in world.elements() if one.name.endswith(" Task")]

    assert shown() == ["Click Button Task"]
    world.step(world.oracle()[0])
    assert shown() == ["Enter Text Task"]
    world.close()


def test_the_reverse_wording_asks_for_the_same() -> None:
    goals = ["Click it.", "Solve this. Press submit.", "Enter A."]
    assert joined(goals, False) == (
        "Click it, and then solve this and press submit, and then enter A."
    )
    assert joined(goals, True) == (
        "Enter A, but before that solve this and press submit, and before that click it."
    )
    plain, reverse = begun(PAIR), begun(f"{PAIR}:reverse")
    assert plain.oracle() == reverse.oracle() and plain.caption() != reverse.caption()
    plain.close()
    reverse.close()


@given(st.lists(st.sampled_from(sorted(SOLVERS)), min_size=2, max_size=8, unique=True))
def test_each_factor_changes_one_thing(parts: list[str]) -> None:
    name = "+".join(parts)
    factors = Composition(name).factors()
    for factor in ("wording", "sequence", "layout"):
        (other,) = factors[factor]
        assert other != name and Composition(other).factors()[factor] == [name]
    assert factors["parts"] == parts


def test_the_listed_compositions_use_all_pages_about_equally() -> None:
    names = listed()
    counts = Counter(part for name in names for part in Composition(name).parts)
    assert len({*names}) == len(names) == 50 and counts.keys() == SOLVERS.keys()
    assert max(counts.values()) - min(counts.values()) <= 1
    assert Capability.ORACLE in MiniWob.spec_of(names[0]).capabilities


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("click-button+chess", "chess"),
        ("click-button+tic-tac-toe", "tic-tac-toe"),
        ("click-button+click-button", "names a page twice"),
        ("+".join(list(SOLVERS)[:9]), "has 9 parts"),
        (f"{PAIR}:reverse:transition", "unknown form"),
    ],
)
def test_what_is_no_composition_is_refused(name: str, said: str) -> None:
    with pytest.raises((UnknownName, InputError), match=said):
        registry.spec(f"miniwob/{name}")


def test_factors_are_ids() -> None:
    found = registry.factors(f"miniwob/{PAIR}?observation=text")
    assert found["wording"] == [f"miniwob/{PAIR}:reverse?observation=text"]
    assert found["parts"][1] == "miniwob/enter-text?observation=text"
