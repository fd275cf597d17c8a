"""Promises, their tests and their defects, without a browser."""

from __future__ import annotations

import random

import pytest

from palaestra.environments.families.websites.reference_site import (
    ALWAYS,
    FIRST,
    LAYOUTS,
    TOPICS,
    drawn_plan,
    site_files,
)
from palaestra.environments.families.websites.site_functions import (
    FUNCTIONS,
    Defect,
    SiteTest,
    broken_by,
)
from palaestra.environments.families.websites.site_judge import difference

DEFECTS = [(name, one) for name, function in FUNCTIONS.items() for one in function.defects]


@pytest.mark.parametrize(("name", "defect"), DEFECTS, ids=lambda one: getattr(one, "what", one))
def test_a_defect_changes_one_place_of_the_reference_in_every_layout(
    name: str, defect: Defect
) -> None:
    plan = drawn_plan(random.Random(1), len(FUNCTIONS))
    for layout in LAYOUTS:
        whole, broken = site_files(plan, layout), site_files(plan, layout, defect)
        assert [path for path in whole if whole[path] != broken[path]] == [defect.file]


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_promises_what_its_tests_look_for(seed: int) -> None:
    plan = drawn_plan(random.Random(seed), 5 + seed % 6)
    assert len(plan.functions) == 5 + seed % 6 and {*ALWAYS} <= {*plan.functions}
    told = plan.words()
    for name, number in plan.topic.items:
        assert f"{name} ({number})" in told
    numbers = [number for _, number in (*plan.topic.items, plan.topic.added)]
    assert len({*numbers}) == len(numbers)
    by_number = sorted(number for _, number in plan.topic.items)
    assert sorted(map(str, by_number)) != [str(one) for one in by_number]  # texts sort otherwise


def test_no_name_begins_like_another_of_its_topic() -> None:
    for _, _, _, names in TOPICS:
        begin = [name[:4].lower() for name in names.split()]
        assert len({*begin}) == len(begin)
        assert not any(one in other.lower() for one in begin for other in names.split()
                       if not other.lower().startswith(one))  # fmt: skip


def test_what_needs_a_broken_function_breaks_with_it() -> None:
    assert broken_by("remove", tuple(FUNCTIONS)) == {"remove", "total", "keep"}
    assert broken_by("remove", ("list", "remove")) == {"remove"}
    assert broken_by("about", tuple(FUNCTIONS)) == {"about"}


def test_only_promised_functions_are_in_the_reference() -> None:
    plan = drawn_plan(random.Random(2), 5)
    files = site_files(plan)
    assert list(files)[-1] == FIRST
    assert ("about.html" in files) == ("about" in plan.functions)
    assert ("Search" in files[FIRST]) == ("search" in plan.functions)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Emma 12 Walden 7", ""),
        ("Walden 7 Emma 12", "'Walden' is out of order"),
        ("Emma 12", "'Walden' is not shown"),
        ("Emmas 12 Walden", "'Emma' is not shown"),
        ("Emma Walden Ulysses", "'Ulysses' is shown"),
    ],
)
def test_what_differs_is_told(said: str, why: str) -> None:
    assert difference(said, SiteTest(shows=("Emma", "Walden"), hides=("Ulysses",))) == why
