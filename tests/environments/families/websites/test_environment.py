"""Sites are built in a folder and judged in the real browser."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.websites.environment import Websites
from palaestra.environments.families.websites.reference_site import (
    LAYOUTS,
    Layout,
    drawn_plan,
    site_files,
)
from palaestra.environments.families.websites.site_functions import FUNCTIONS, broken_by
from palaestra.environments.families.websites.site_judge import HUNG, SiteJudge
from tests.browser.needed import browser_missing

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

PLAN = drawn_plan(random.Random(5), len(FUNCTIONS))


@pytest.fixture(scope="module")
def judge() -> Iterator[SiteJudge]:
    made = SiteJudge()
    yield made
    made.close()


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


@pytest.mark.parametrize(
    "layout", [LAYOUTS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in LAYOUTS[1:])]
)
def test_a_whole_site_keeps_every_promise_whatever_its_markup(
    judge: SiteJudge, layout: Layout
) -> None:
    found = judge.findings(encoded(site_files(PLAN, layout)), PLAN)
    assert [one.function for one in found] == [*FUNCTIONS]
    assert [one for one in found if not one.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_defect_fails_its_function_and_those_that_need_it(judge: SiteJudge, name: str) -> None:
    for defect in FUNCTIONS[name].defects:
        found = judge.findings(encoded(site_files(PLAN, "table", defect)), PLAN)
        broken = {one.function for one in found if not one.holds}
        assert broken == broken_by(name, PLAN.functions), defect.what


def test_promises_are_judged_one_by_one_on_a_site_of_another_hand(judge: SiteJudge) -> None:
    red, green, blue = PLAN.topic.colour
    page = (
        f"<body style='background:#{red:02x}{green:02x}{blue:02x}'>"
        + "".join(f"<section><h2>{n}</h2>{v}</section>" for n, v in PLAN.topic.items)
        + f"<details><summary>About</summary>About {PLAN.topic.title}</details>"
    )
    found = judge.findings({"index.html": page.encode()}, PLAN)
    assert [one.function for one in found if one.holds] == ["list", "colour"]
    why = {one.function: one.why for one in found}
    assert why["add"].startswith("type 'Name'") and "No element fits" in why["add"]


@pytest.mark.slow
def test_a_site_that_hangs_keeps_nothing_and_the_next_is_judged(judge: SiteJudge) -> None:
    hung = judge.findings({"index.html": b"<p>x</p><script>while (true);</script>"}, PLAN)
    assert {one.why for one in hung} == {HUNG}
    assert all(one.holds for one in judge.findings(encoded(site_files(PLAN)), PLAN))


@pytest.mark.slow
def test_the_reference_solves_and_a_defect_does_not() -> None:
    env = Websites("small")
    task = registry.tasks("websites/small").task(Split.TEST, 0)
    first = env.reset(task)
    assert env.plan.words() == first.text and env.progress() == 0.0
    *writing, submit = env.oracle()
    for action in writing:
        env.step(action)
    assert env.progress() == 0.9 and env.oracle() == [submit]
    assert env.step(submit).success
    env.reset(task)
    for action in writing:
        env.step(action)
    rng = random.Random(0)
    while env.progress() == 0.9:
        env.step(env.sample_action(rng))
    broken = [one for one in env.findings() if not one.holds]
    assert broken and not env.step(Action("submit")).success
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of("websites/small", steps=4, per_split=1), clause)
    assert not finding.broken, finding.broken
