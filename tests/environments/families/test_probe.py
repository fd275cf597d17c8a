"""The probe environments keep the contract, and each isolates its difficulty."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import fmean

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.probe.environment import CHANCE, WORDS, Probe

IDS = ("probe/umbrella-4", "probe/memory-4", "probe/sea-3")


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", IDS)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


def roll_out(id: str, index: int, words: list[str]) -> list[tuple[str, float, bool]]:
    world = Probe(id.partition("/")[2])
    world.reset(registry.tasks(id).task(Split.TRAIN, index))
    found = []
    for word in words:
        transition = world.step(Action(word))
        found.append((transition.observation.text, transition.reward, transition.success))
    return found


@pytest.mark.parametrize("index", range(8))
def test_only_the_first_choice_decides_about_the_umbrella(index: int) -> None:
    results = {
        words: roll_out("probe/umbrella-4", index, list(words))[-1][2]
        for words in product(*[WORDS["umbrella"]] * 4)
    }
    right = {words[0] for words, success in results.items() if success}
    assert len(right) == 1
    assert all(success == (words[0] in right) for words, success in results.items())


def test_the_days_between_pay_by_chance_whatever_is_chosen() -> None:
    take = [roll_out("probe/umbrella-4", i, ["take"] * 4) for i in range(40)]
    leave = [roll_out("probe/umbrella-4", i, ["take", *["leave"] * 3]) for i in range(40)]
    luck = [reward for days in take for _, reward, _ in days[1:3]]
    assert luck == [reward for days in leave for _, reward, _ in days[1:3]]
    assert set(luck) == {-CHANCE, CHANCE}
    assert abs(fmean(luck)) < CHANCE / 2


def test_the_word_to_remember_is_shown_once() -> None:
    for index in range(6):
        world = Probe("memory-4")
        first = world.reset(registry.tasks("probe/memory-4").task(Split.TRAIN, index)).text
        wanted = first.removeprefix("remember ")
        later = [world.step(Action("red")).observation.text for _ in range(3)]
        assert later == ["wait", "wait", "which"]
        assert world.step(Action(wanted)).success


def test_one_way_of_many_leads_to_the_treasure_and_it_is_the_same_in_every_task() -> None:
    paths = {
        words
        for index in range(3)
        for words in product(*[WORDS["sea"]] * 3)
        if roll_out("probe/sea-3", index, list(words))[-1][2]
    }
    assert len(paths) == 1
