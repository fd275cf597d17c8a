"""What a factor changes: differences from the base are paired by the number of the task."""

from __future__ import annotations

import pytest

from palaestra.evaluation.reports.factor_table import table, texts
from palaestra.evaluation.running.evaluation_plan import Factor, Plan, as_json, from_json
from tests.evaluation.boards import OTHER, WORLD, cell

BASE, OTHERS = cell("m", WORLD), [cell("m", OTHER, seed=seed) for seed in (1, 2)]
PLAN = Plan((BASE, *OTHERS), factor=Factor("size", WORLD))


def test_differences_are_means_over_pairs_after_a_mean_over_seeds() -> None:
    scores = {
        BASE.phase: {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0},
        OTHERS[0].phase: {0: 0.0, 1: 0.0, 2: 1.0, 7: 1.0},
        OTHERS[1].phase: {0: 1.0, 1: 0.0, 2: 1.0},
    }
    found = table(PLAN, scores)
    assert (found["factor"], found["base"]) == ("size", WORLD)
    base, other = found["rows"]
    assert (base["success"], base["difference"], base["tasks"]) == (0.75, None, 4)
    assert other["tasks"] == 4  # the mean of task 0 is 0.5
    assert other["success"] == pytest.approx((0.5 + 0 + 1 + 1) / 4)
    assert other["pairs"] == 3  # task 7 has no base, and task 3 no result here
    assert other["difference"] == pytest.approx((-0.5 + 0 + 0) / 3)
    low, high = other["difference_interval"]
    assert -0.5 <= low <= other["difference"] <= high <= 0
    assert texts(found["rows"])[1][5] == "-16.7"


def test_without_two_pairs_there_is_no_difference() -> None:
    scores = {BASE.phase: {0: 1.0}, OTHERS[0].phase: {0: 0.0, 1: 1.0}}
    base, other = table(PLAN, scores)["rows"]
    assert base["success"] == 1
    assert (other["pairs"], other["difference"], other["difference_interval"]) == (0, None, None)
    assert texts([other])[0][5:] == ["", ""]


def test_a_run_keeps_its_factor() -> None:
    assert from_json(as_json(PLAN), "run") == PLAN
