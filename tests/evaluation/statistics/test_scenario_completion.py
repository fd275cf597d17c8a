"""Scenario completion counts all variants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.statistics.scenario_completion import scenario_completion
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode


def scenarios(*solved: str) -> list[Episode]:
    """Episodes of scenarios, each with a letter per variant: + solved, - not, ! broken."""
    outcomes = {"+": SUCCESS, "-": FAILURE, "!": CRASH}
    made, number = [], 0
    for scenario, letters in enumerate(solved):
        for letter in letters:
            one = episode("eval/test", number, outcomes[letter])
            task = replace(one.task, id=f"test/{number}", parameters={"scenario": scenario})
            made.append(replace(one, task=task))
            number += 1
    return made


def test_a_scenario_is_solved_if_all_of_its_variants_are() -> None:
    found = scenario_completion(scenarios("+++", "++-", "---", "+++"))
    assert found is not None
    assert (found.mean, found.n) == (0.5, 4)


def test_scenarios_without_a_result_for_each_variant_are_left_out() -> None:
    found = scenario_completion(scenarios("+++", "++!", "+-+", "++"))
    assert found is not None
    assert (found.mean, found.n) == (0.5, 2)
    with pytest.raises(GroupTooSmall, match="1 of 2 scenarios"):
        scenario_completion(scenarios("+++", "++!"))


def test_repeats_count_by_themselves() -> None:
    again = [replace(one, key=replace(one.key, member=1)) for one in scenarios("+++", "---", "++-")]
    found = scenario_completion([*scenarios("+++", "+++", "++-"), *again])
    assert found is not None
    assert found.mean == pytest.approx((1 + 0.5 + 0) / 3)


def test_tasks_without_scenarios_have_none() -> None:
    plain = [replace(one, task=replace(one.task, parameters={})) for one in scenarios("+++", "+")]
    assert scenario_completion(plain) is None
